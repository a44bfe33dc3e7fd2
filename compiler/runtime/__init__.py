"""runtime: builds, caches, loads and calls compiled programs; knows not how they were made."""
