/*
 * A system call filter that the command runs under on top of the engine's own profile (filters add up: the
 * strictest answer counts). Engines of different ages allow different things by default; this takes away
 * what no calculation needs and what kernels were broken through, and what slows the whole node (sync).
 */
#ifndef FILTER_H
#define FILTER_H

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "name this machine's audit architecture"
#endif

#define X32_SYSCALL_BIT 0x40000000u
/* Numbers that older kernel headers lack; the same on all architectures. */
#define NR_IO_URING_SETUP 425
#define NR_IO_URING_REGISTER 427
#define NR_MEMFD_SECRET 447

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE(number) SECCOMP_RET_ERRNO | ((number) & SECCOMP_RET_DATA)
#define DENY(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), ANSWER(REFUSE(EPERM))
#define DENY_FAMILY(family) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (family), 0, 1), ANSWER(REFUSE(EPERM))
#define FAMILIES 4
/* On both architectures the machine is little-endian: the low half of an argument comes first. */

static int install_filter(void) {
    struct sock_filter program[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0),
        ANSWER(REFUSE(ENOSYS)),
        LOAD(nr),
#if defined(__x86_64__)
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_SYSCALL_BIT, 0, 1),
        ANSWER(REFUSE(ENOSYS)),
        DENY(SYS_modify_ldt),
#endif
        /* Libraries fall back when these do not exist. */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, NR_IO_URING_SETUP, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NR_IO_URING_REGISTER, 1, 0),
        ANSWER(REFUSE(ENOSYS)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NR_MEMFD_SECRET, 0, 1),
        ANSWER(REFUSE(ENOSYS)),
        DENY(SYS_ptrace),
        DENY(SYS_process_vm_readv),
        DENY(SYS_process_vm_writev),
        DENY(SYS_keyctl),
        DENY(SYS_add_key),
        DENY(SYS_request_key),
        DENY(SYS_userfaultfd),
        DENY(SYS_bpf),
        DENY(SYS_perf_event_open),
        DENY(SYS_name_to_handle_at),
        DENY(SYS_open_by_handle_at),
        DENY(SYS_sync),
        DENY(SYS_syncfs),
        DENY(SYS_unshare),
        DENY(SYS_setns),
        DENY(SYS_mount),
        /* Limits of the agent (process 1) are not for the command to set; its own are (`ulimit`). */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 3),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 4 + 2 * FAMILIES),
        ANSWER(REFUSE(EPERM)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 1 + 2 * FAMILIES),
        LOAD(args[0]),
        DENY_FAMILY(AF_ALG),
        DENY_FAMILY(AF_VSOCK),
        DENY_FAMILY(AF_PACKET),
        DENY_FAMILY(AF_NETLINK),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = program};
    /* Set by the engine already; a filter without privileges needs it. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

#endif
