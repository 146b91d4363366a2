/* SPDX-License-Identifier: MIT */
/*
 * unwind: what the compiler refers to for clean-up handlers, found when it is needed.
 *
 * Gates are left by clean-up handlers when a thread is cancelled inside a call. For those the
 * compiler wants two functions of libgcc_s, which would then be loaded into every program that is
 * started with the library: a quarter of a millisecond, for something that hardly ever happens.
 * When it does happen, libgcc_s is doing the unwinding and so is loaded already. (glibc does the
 * same for its own use. The library's export list keeps both names local.)
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <unwind.h>

_Unwind_Reason_Code __gcc_personality_v0(int version, _Unwind_Action actions,
                                         _Unwind_Exception_Class class,
                                         struct _Unwind_Exception *exception,
                                         struct _Unwind_Context *context);

static void *libgcc_function(const char *name)
{
    void *lib = dlopen("libgcc_s.so.1", RTLD_NOW);
    void *function = lib != NULL ? dlsym(lib, name) : NULL;

    if (function == NULL)
        abort(); /* as libc does: unwinding cannot go on, nor stop */
    return function;
}

_Unwind_Reason_Code __gcc_personality_v0(int version, _Unwind_Action actions,
                                         _Unwind_Exception_Class class,
                                         struct _Unwind_Exception *exception,
                                         struct _Unwind_Context *context)
{
    _Unwind_Reason_Code (*real_personality)(int, _Unwind_Action, _Unwind_Exception_Class,
                                            struct _Unwind_Exception *, struct _Unwind_Context *);

    *(void **)&real_personality = libgcc_function("__gcc_personality_v0");
    return real_personality(version, actions, class, exception, context);
}

void _Unwind_Resume(struct _Unwind_Exception *exception)
{
    void (*real_resume)(struct _Unwind_Exception *);

    *(void **)&real_resume = libgcc_function("_Unwind_Resume");
    real_resume(exception);
    __builtin_unreachable();
}
