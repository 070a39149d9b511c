#!/usr/bin/env bash
# Runs a command under another kernel: a virtual machine that sees this machine's files read-only and has
# every control group on version 2. For what the kernel at hand cannot show.
#
#   tools/in_vm.sh COMMAND [ARGUMENT...]
#
# Needs root and Debian's qemu-system-x86, linux-image-cloud-amd64, busybox-static and cpio. What the command writes is
# lost with the machine; its output and exit status are ours.
set -euo pipefail

memory=${VM_MEMORY:-2048}

die() {
    printf 'in_vm: %s\n' "$*" >&2
    exit 125
}

[ $# -gt 0 ] || die "say what to run: tools/in_vm.sh COMMAND [ARGUMENT...]"
[ "$(id -u)" = 0 ] || die "only root can share the machine's files"
virtiofsd=/usr/lib/qemu/virtiofsd
for program in qemu-system-x86_64 busybox cpio "$virtiofsd"; do
    command -v "$program" >/dev/null || die "\`$program\` is missing: install qemu-system-x86, busybox-static and cpio"
done
kernel=$(find /boot -name 'vmlinuz-*-cloud-amd64' | sort -V | tail -n 1)
[ -n "$kernel" ] || die "there is no kernel to run: install linux-image-cloud-amd64"
modules=/lib/modules/${kernel#/boot/vmlinuz-}

work=$(mktemp -d)
share=
# shellcheck disable=SC2317 # the trap below calls it
cleanup() {
    [ -z "$share" ] || kill "$share" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

# The first files the machine sees: enough to find ours.
first=$work/first
mkdir -p "$first"/{bin,modules,proc,sys,dev,host,over,new}
cp "$(command -v busybox)" "$first/bin/busybox"
for module in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci fuse virtiofs overlay; do
    find "$modules" -name "$module.ko*" -exec cp {} "$first/modules/" \;
done
cat >"$first/init" <<'INIT'
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in virtio_ring virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci fuse virtiofs overlay; do
    # Which of the first two needs the other depends on the kernel.
    insmod /modules/$module.ko 2>/dev/null
done
mount -t virtiofs -o ro host /host
mount -t tmpfs over /over
mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/host,upperdir=/over/upper,workdir=/over/work overlay /new
mount -t proc proc /new/proc
mount -t sysfs sys /new/sys
mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts pts /new/dev/pts
mount -t tmpfs shm /new/dev/shm
mount -t tmpfs tmp /new/tmp
mount -t tmpfs run /new/run
mount -t cgroup2 none /new/sys/fs/cgroup
ip link set lo up
cp /command /new/tmp/command
chroot /new /bin/bash /tmp/command >/dev/ttyS1 2>&1
echo "in_vm: status $?" >/dev/ttyS1
sync
echo o >/proc/sysrq-trigger
cat
INIT
chmod +x "$first/init"
{
    printf 'export PATH=%q HOME=/tmp\n' "$PATH"
    printf 'cd %q\n' "$PWD"
    env | grep -E '^(RUST|PADDLECLOUD|SIMULATOR)_' | sed 's/^/export /' || true
    printf '%q ' "$@"
    echo
} >"$first/command"
(cd "$first" && find . | cpio --quiet -o -H newc) >"$work/first.cpio"

# A share that ends with the machine; its own sandbox would need what containers rarely have.
"$virtiofsd" --socket-path="$work/share" -o source=/ -o sandbox=chroot -o cache=auto >"$work/share.log" 2>&1 &
share=$!
until [ -S "$work/share" ]; do
    kill -0 "$share" 2>/dev/null || die "the files cannot be shared: $(cat "$work/share.log")"
done

# Emulated: slower than /dev/kvm, and there also where this machine is a virtual one itself.
qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m "$memory" -smp 2 -display none -serial null -serial stdio -no-reboot -nic none \
    -object "memory-backend-memfd,id=memory,size=${memory}M,share=on" -numa node,memdev=memory \
    -chardev "socket,id=share,path=$work/share" -device vhost-user-fs-pci,chardev=share,tag=host \
    -kernel "$kernel" -initrd "$work/first.cpio" -append "console=ttyS0 quiet panic=-1" </dev/null |
    stdbuf -oL tr -d '\r' | tee "$work/output" | grep --line-buffered -v '^in_vm: status '
status=$(sed -n 's/^in_vm: status //p' "$work/output" | tail -n 1)
exit "${status:-125}"
