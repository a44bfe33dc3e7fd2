"""tc-report: traces of the compiler go in; an offline report and a summary come out."""
