"""tc-minify and tc-bisect: a script that goes wrong under a compiler in, the smallest cause out.

`runner.py` runs the script and records its graphs; `case.py` is a graph as text that can be cut
anywhere; `judge.py` says how a case fails; `server.py` judges in warm forked processes;
`passes/` make cases smaller; `reduce.py` drives them.
"""
