#!/bin/busybox sh
# The guest's init in the initramfs. Builds the root: a tmpfs over the host's read-only root.
busybox=/bin/busybox

give_up() {
    $busybox echo "guest: $1"
    $busybox poweroff -f
}

$busybox mkdir -p /proc /sys /dev /lower /upper /new
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sysfs /sys
$busybox mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do
    $busybox insmod "$module" || $busybox echo "guest: cannot load $module"
done

$busybox mount -t virtiofs -o ro root /lower || give_up "cannot mount the host's root"
$busybox mount -t tmpfs -o mode=0755,size=75% upper /upper
$busybox mkdir /upper/files /upper/work
$busybox mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /new ||
    give_up "cannot put a tmpfs over the host's root"

$busybox mkdir -p /new/run /new/proc /new/sys /new/dev
$busybox mount -t tmpfs -o mode=0755 run /new/run
$busybox cp -r /undercurrent /new/run/undercurrent
$busybox cp /bin/busybox /new/run/undercurrent/busybox
for folder in proc sys dev; do
    $busybox mount -o move /$folder /new/$folder
done
exec $busybox switch_root /new /run/undercurrent/busybox sh /run/undercurrent/init
