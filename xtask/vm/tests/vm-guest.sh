# Runs in the guest, with only busybox. Prints properties of the guest, sends a mebibyte from one interface to the other, and exits
# with status 7.
set -e
busybox=/run/undercurrent/busybox
echo "release=$($busybox uname -r)"
echo "cpus=$($busybox nproc)"
echo "argument=$1"
echo "a complaint" >&2
echo kept >"$UNDERCURRENT_SHARE/result"
$busybox cp /sys/kernel/btf/vmlinux "$UNDERCURRENT_SHARE/running-btf"

$busybox unshare -n $busybox sleep 1000 &
far=$!
inside() {
    $busybox nsenter -t $far -n $busybox "$@"
}
until [ "$($busybox readlink /proc/$far/ns/net)" != "$($busybox readlink /proc/self/ns/net)" ]; do :; done
$busybox ip link set dev vnet1 netns $far
$busybox ip addr add 10.0.0.1/24 dev vnet0
$busybox ip link set dev vnet0 up
inside ip addr add 10.0.0.2/24 dev vnet1
inside ip link set dev vnet1 up

polled() {
    total=0
    while read -r processed _; do total=$((total + 0x$processed)); done </proc/net/softnet_stat
    echo $total
}
polled_before=$(polled)
# Keep the input of nc open: nc exits at the end of its input.
$busybox mkfifo /run/silence
exec 3<>/run/silence
inside nc -l -p 5001 <&3 >/run/received &
receiver=$!
until inside netstat -ltn | $busybox grep -q :5001; do :; done
$busybox head -c 1048576 /dev/zero | $busybox nc 10.0.0.2 5001
wait $receiver
echo "received=$($busybox stat -c %s /run/received)"
echo "polled=$(($(polled) - polled_before))"
echo "interrupts=$($busybox awk '/virtio[0-9]+-input/ { for (i = 2; i <= NF - 3; i++) sum += $i } END { print sum }' /proc/interrupts)"
echo "packets=$(inside awk '/vnet1:/ { print $3 }' /proc/net/dev)"
echo "delivered=$(inside awk '/^Ip: [0-9]/ { print $4 }' /proc/net/snmp)"
exit 7
