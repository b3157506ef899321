/* A library that does nothing. NAMES, if given, are the texts that it holds: "libx.so.1\0liby.so.2". */
#ifdef NAMES
const char stub_names[] __attribute__((used)) = "\0" NAMES "\0";
#endif
int stub_call(void) { return 0; }
