"""Runtime: builds, caches, loads and calls compiled programs, independently of the compiler."""
