"""C++ backend: prints kernels as C for CPUs."""
