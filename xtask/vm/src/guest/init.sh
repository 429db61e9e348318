# The guest's first process once it has its root. Says on the port "status", when the command has ended: the guest's
# uptime at the start of this script and of the command, and the command's exit status.
here=/run/undercurrent
busybox=$here/busybox
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec </dev/null >/dev/console 2>&1
read -r booted _ </proc/uptime
. $here/settings

attach() {
    $busybox mkdir -p "$2"
    $busybox mount -t "$1" "$1" "$2" || $busybox echo "guest: no $1 at $2"
}
attach tmpfs /dev/shm
attach devpts /dev/pts
attach tracefs /sys/kernel/tracing
attach debugfs /sys/kernel/debug
attach bpf /sys/fs/bpf
attach cgroup2 /sys/fs/cgroup
$busybox ln -sfn /proc/self/fd /dev/fd
$busybox ln -sfn fd/0 /dev/stdin
$busybox ln -sfn fd/1 /dev/stdout
$busybox ln -sfn fd/2 /dev/stderr

$busybox mkdir -p "$share"
$busybox mount -t virtiofs share "$share" || $busybox echo "guest: no share at $share"

# The host's folder of modules is another kernel's.
$busybox mkdir -p /lib/modules
$busybox ln -sfn "$kernel_modules" "/lib/modules/$release"

port() {
    for port in /sys/class/virtio-ports/*; do
        read -r name <"$port/name"
        [ "$name" != "$1" ] || $busybox echo "/dev/${port##*/}"
    done
}
stdout=$(port stdout) stderr=$(port stderr) status=$(port status)

# One at a time: a module that this kernel lacks should not keep the others out.
for module in $load; do
    modprobe "$module" 2>&1 | $busybox sed 's/^/guest: /' >"$here/modprobe"
    [ ! -s "$here/modprobe" ] || complaints="$complaints$($busybox cat "$here/modprobe")
"
done

for link in /sys/class/net/*; do
    read -r address <"$link/address"
    for nic in $nics; do
        [ "${nic%%=*}" != "$address" ] || $busybox ip link set dev "${link##*/}" name "${nic##*=}"
    done
done
$busybox ip link set dev lo up
$busybox hostname undercurrent-vm

read -r ready _ </proc/uptime
(
    exec >"$stdout" 2>"$stderr"
    [ -z "$complaints" ] || $busybox printf %s "$complaints" >&2
    exec $busybox setsid /bin/sh $here/command
)
result=$?
$busybox sync
$busybox echo "$booted $ready $result" >"$status"
$busybox poweroff -f
