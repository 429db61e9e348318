# The guest's init after switch_root. When the command has exited, writes to the port "status": the uptime at the start of this
# script, the uptime at the start of the command, and the exit status.
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

# The host's folder of modules belongs to another kernel.
$busybox mkdir -p /lib/modules
$busybox ln -sfn "$kernel_modules" "/lib/modules/$release"

port() {
    for port in /sys/class/virtio-ports/*; do
        read -r name <"$port/name"
        [ "$name" != "$1" ] || $busybox echo "/dev/${port##*/}"
    done
}
stdout=$(port stdout) stderr=$(port stderr) status=$(port status)

# One call for each module: a missing module must not keep the others from loading.
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
