#!/bin/sh
# Builds the programs for both processors with Debian 12's gcc and its cross compiler for arm64
# (gcc, gcc-aarch64-linux-gnu). The results and their sources are pinned in SHA256SUMS.
set -eu
cd "$(dirname "$0")"
options="-Os -static -nostdlib -nostartfiles -ffreestanding -fno-stack-protector -fno-pie -no-pie
    -fno-asynchronous-unwind-tables -fno-ident -Wall -Wextra -Wno-implicit-fallthrough
    -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-s"
for program in start sudo; do
    # shellcheck disable=SC2086
    ${CC_X86_64:-gcc} $options -o "$program.x86_64" "$program.c"
    # shellcheck disable=SC2086
    ${CC_AARCH64:-aarch64-linux-gnu-gcc} $options -o "$program.aarch64" "$program.c"
done
sha256sum linux.h *.c *.x86_64 *.aarch64 >SHA256SUMS
