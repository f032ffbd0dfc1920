/* System calls without a C library, and the entry point: the stack has argc, argv and envp. */

#include <asm/unistd.h>

static long call(long number, long first, long second, long third, long fourth)
{
#if defined(__x86_64__)
	long result;
	register long r10 __asm__("r10") = fourth;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = first;
	register long x1 __asm__("x1") = second;
	register long x2 __asm__("x2") = third;
	register long x3 __asm__("x3") = fourth;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
#endif
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start: mov %rsp, %rdi\nand $-16, %rsp\ncall run\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start: mov x0, sp\nbl run\n");
#endif

__attribute__((noreturn)) static void leave(int code)
{
	for (;;)
		call(__NR_exit, code, 0, 0, 0);
}

__attribute__((noreturn, used)) void run(long *stack);
