"""Facts about the process and the thread: environment, clocks, random numbers, contexts, weak
references.
"""

from __future__ import annotations

from fact_world import Family

process = Family("process")


def _read(name: str, expression: str, change: str, setup: str = "") -> None:
    """Add a fact that ``f(x)`` reads of the process."""
    alone = "patch(sys" in change or "time" in setup + change or "sys.set" in change
    text = f"{setup}\ndef f(x):\n    return x * ({expression})\nargs = t(1),"
    process(name, text, change, alone=alone)


_E = "put(os.environ, 'FACT', '2')"
_read("environment_item", "int(os.environ['FACT'])", "put(os.environ, 'FACT', '5')", _E)
_read("environment_get", "int(os.environ.get('FACT', '3'))", "put(os.environ, 'FACT', '5')", _E)
_read("environment_absent", "int(os.environ.get('FACT', '3'))", "put(os.environ, 'FACT', '5')")
_read("environment_in", "1 if 'FACT' in os.environ else 2", "put(os.environ, 'FACT', '5')")
_read("environment_gone", "1 if 'FACT' in os.environ else 2", "put(os.environ, 'FACT')", _E)
_read("getenv", "int(os.getenv('FACT', '3'))", "put(os.environ, 'FACT', '5')")
_read("arguments", "len(sys.argv)", "patch(sys, 'argv', ['a'] * 9)")
_read("path", "1 if sys.path[0] == 'zzz' else 2", "patch(sys, 'path', ['zzz', *sys.path])")
_read(
    "sys_flag", "1 if sys.dont_write_bytecode == 5 else 2", "patch(sys, 'dont_write_bytecode', 5)"
)
_read("version_info", "sys.version_info[0]", "patch(sys, 'version_info', (9, 9))")
_read("platform", "len(sys.platform)", "patch(sys, 'platform', 'something')")
_read(
    "working_directory",
    "1 if os.getcwd() == '/' else 2",
    "defer(lambda d=os.getcwd(): os.chdir(d)); os.chdir('/')",
)
_read(
    "file_exists",
    "1 if os.path.exists(NAME) else 2",
    "open(NAME, 'w').close()",
    """
import tempfile
NAME = os.path.join(enter(tempfile.TemporaryDirectory()), 'a')
""",
)
_read("clock", "1 if time.time() > 1e6 else 2", "patch(time, 'time', lambda: 0.0)", "import time")
_read(
    "clock_value",
    "1 if LIMIT > time.perf_counter() else 2",
    "time.sleep(max(0, LIMIT - time.perf_counter()))",
    "import time\nLIMIT = time.perf_counter() + 0.3",
)
_read("random_state", "random.random()", "random.seed(5)", "random.seed(1)")
_read("random_object", "R.random()", "R.seed(5)", "R = random.Random(1)")
_read("random_object_replaced", "R.random()", "R = random.Random(5)", "R = random.Random(1)")
_read("random_choice", "random.choice([1, 2, 3, 4, 5, 6, 7])", "random.seed(9)", "random.seed(1)")
_read(
    "random_between",
    "random.uniform(1, 9) + random.randint(1, 9)",
    "random.seed(5)",
    "random.seed(1)",
)
_read(
    "numpy_print_options",
    "len(str(np.linspace(0, 1, 4)))",
    "enter(np.printoptions(precision=3))",
    "import numpy as np",
)
_read("numpy_random", "float(np.random.rand())", "np.random.seed(5)", "np.random.seed(1)")
_read(
    "numpy_generator",
    "float(R.random())",
    "R = np.random.default_rng(5)",
    "R = np.random.default_rng(1)",
)
_read("hash_of_object", "1 if hash(o) == h else 2", "o = object()", "o = object()\nh = hash(o)")
_read("id_of_object", "1 if id(o) == i else 2", "o = object()", "o = object()\ni = id(o)")
_read("context_variable", "V.get()", "V.set(5)", "V = contextvars.ContextVar('v')\nV.set(2)")
_read("context_variable_default", "V.get(3)", "V.set(5)", "V = contextvars.ContextVar('v')")
_read(
    "context_variable_own_default",
    "V.get()",
    "V.set(5)",
    "V = contextvars.ContextVar('v', default=2)",
)
_read(
    "context_variable_replaced",
    "V.get()",
    "V = W",
    "V, W = (contextvars.ContextVar(n, default=d) for n, d in (('a', 2), ('b', 5)))",
)
_read(
    "context_copy", "len(contextvars.copy_context())", "V.set(5)", "V = contextvars.ContextVar('v')"
)
_read("thread_local", "L.k", "L.k = 5", "L = threading.local()\nL.k = 2")
_read("thread_local_absent", "getattr(L, 'k', 3)", "L.k = 5", "L = threading.local()")
_read("thread_local_has", "1 if hasattr(L, 'k') else 2", "L.k = 5", "L = threading.local()")
_read(
    "thread_name",
    "len(threading.current_thread().name)",
    "patch(threading.current_thread(), 'name', 'something longer')",
)
_read(
    "thread_is_main",
    "1 if threading.current_thread() is owner else 2",
    "owner = None",
    "owner = threading.current_thread()",
)
_read(
    "thread_count",
    "threading.active_count()",
    """
stop = threading.Event()
worker = threading.Thread(target=stop.wait); worker.start()
defer(lambda: (stop.set(), worker.join()))
""",
)
_read(
    "weak_reference_dies",
    "1 if R() is None else 2",
    "o.clear(); gc.collect()",
    "class O: pass\no = [O()]\nR = weakref.ref(o[0])",
)
_read(
    "weak_reference_value",
    "R().k",
    "o2 = O(); o2.k = 5; R = weakref.ref(o2)",
    "class O: pass\no = O(); o.k = 2\nR = weakref.ref(o)",
)
_read(
    "weak_reference_attribute",
    "R().k",
    "o.k = 5",
    "class O: pass\no = O(); o.k = 2\nR = weakref.ref(o)",
)
_read(
    "weak_values",
    "len(D)",
    "o.clear(); gc.collect()",
    "class O: pass\no = [O()]\nD = weakref.WeakValueDictionary(a=o[0])",
)
_read(
    "weak_keys",
    "D[o]",
    "D[o] = 5",
    "class O: pass\no = O()\nD = weakref.WeakKeyDictionary()\nD[o] = 2",
)
_read("weak_set", "len(D)", "p = O(); D.add(p)", "class O: pass\no = O()\nD = weakref.WeakSet([o])")
_read(
    "weak_method",
    "R()()",
    "B.m = lambda self: 5; R = weakref.WeakMethod(b.m)",
    "class B:\n    def m(self): return 2\nb = B()\nR = weakref.WeakMethod(b.m)",
)
_read("weak_proxy", "R.k", "o.k = 5", "class O: pass\no = O(); o.k = 2\nR = weakref.proxy(o)")
_read("flag_event", "1 if E.is_set() else 2", "E.set()", "E = threading.Event()")
_read("lock_held", "1 if L.locked() else 2", "L.acquire(blocking=False)", "L = threading.Lock()")
_read(
    "logger_level",
    "1 if L.isEnabledFor(10) else 2",
    "L.setLevel(10)",
    "import logging\n"
    "L = logging.getLogger('fact.' + __import__('uuid').uuid4().hex); L.setLevel(30)",
)
_read(
    "warnings_filter",
    "len(warnings.filters)",
    "enter(warnings.catch_warnings()); warnings.simplefilter('error', ImportWarning)",
    "import warnings",
)
_read(
    "decimal_context",
    "float(D(1) / D(3))",
    "enter(decimal.localcontext()).prec = 2",
    "import decimal\nD = decimal.Decimal",
)
_read("locale_free_text", "len(f'{K:>{W}}')", "W = 9", "K, W = 1, 4")
# Compiled code may keep some references itself.
_read("reference_count", "1 if sys.getrefcount(o) > 999 else 2", "l = [o] * 9999", "o = object()")
_read(
    "debug_flag",
    "1 if sys.flags.optimize else 2",
    "patch(sys, 'flags', types.SimpleNamespace(optimize=5))",
)
_read(
    "trace_function",
    "1 if sys.gettrace() is None else 2",
    "defer(lambda s=sys.gettrace(): sys.settrace(s)); sys.settrace(lambda *a: None)",
)
_read("queue_size", "Q.qsize()", "Q.put(1)", "import queue\nQ = queue.Queue()\nQ.put(0)")
_read("string_io", "len(S.getvalue())", "S.write('abc')", "import io\nS = io.StringIO('a')")
