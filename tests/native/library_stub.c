/* A library that does nothing. NAMES, if given, are the texts that it holds: "libx.so.1\0liby.so.2".
 * NEEDS is a function that another library must have, HAS one that this library has. With RAISES it
 * is an extension module "core" whose import raises ImportError with that text. */
#ifdef NAMES
const char stub_names[] __attribute__((used)) = "\0" NAMES "\0";
#endif
#ifdef NEEDS
int NEEDS(void);
int stub_use(void) { return NEEDS(); }
#endif
#ifdef HAS
int HAS(void) { return 0; }
#endif
#ifdef RAISES
extern void *PyExc_ImportError;
void PyErr_SetString(void *, const char *);
void *PyInit_core(void) { PyErr_SetString(PyExc_ImportError, RAISES); return 0; }
#endif
#ifdef CRASH
void abort(void);
__attribute__((constructor)) static void stub_crash(void) { abort(); }
#endif
int stub_call(void) { return 0; }
