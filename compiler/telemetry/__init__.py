"""What the compiler reports: events of each compile, and counts of calls."""
