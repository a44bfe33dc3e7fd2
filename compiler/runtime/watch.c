/* Watch: a check that definitions are as they were when a function was captured.
 *
 * It watches classes (what they define under given names, and their bases), dictionaries (what
 * they hold under given names, or how much: modules, builtins, hooks), functions (their code), and
 * which classes were registered with abstract ones. Each class has a
 * version tag, and each dictionary has one up to Python 3.12; while the tags are the same, so is
 * all that was looked up. Where a tag differs, the facts behind it are compared one by one, and the
 * new tag is remembered if they hold.
 *
 * Nothing that a user made is kept alive: definitions are held by weak references where their
 * types allow them, and of plain data only the type is compared (guards on sources compare data).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>

typedef struct {
    PyObject *name;
    char kind;     /* see `describe` */
    PyObject *ref; /* a weak reference, or the object itself where it allows none; NULL: absent */
} Fact;

typedef struct {
    PyObject *owner; /* weak reference to a class or function; a dictionary itself */
    uint64_t version; /* at which all held */
    uint64_t refused; /* at which something did not */
    int n;
    Fact *facts;
    PyObject *bases; /* of a class: tuple of weak references along the resolution order */
    Py_ssize_t size; /* of a dictionary whose size counts, else -1 */
} Watched;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *names; /* frozenset: what is looked up in classes */
    int n_classes, n_dicts, n_functions;
    Watched *classes, *dicts, *functions;
    PyObject *token;    /* state of the registries of abstract classes */
    PyObject *abstract; /* called where that has changed: whether its facts hold; or NULL */
} Watch;

static PyObject *get_token; /* abc.get_cache_token */

/* -- references -------------------------------------------------------------------------- */

/* A new reference to an object that does not keep it alive, if its type allows that. */
static PyObject *
refer(PyObject *object)
{
    PyObject *ref = PyWeakref_NewRef(object, NULL);
    if (ref == NULL) {
        PyErr_Clear();
        ref = Py_NewRef(object);
    }
    return ref;
}

/* Borrowed: what a reference leads to; None if that is gone. */
static PyObject *
target(PyObject *ref)
{
    return PyWeakref_CheckRefExact(ref) ? PyWeakref_GET_OBJECT(ref) : ref;
}

/* -- facts ------------------------------------------------------------------------------- */

/* The kind of a value, and a new reference to what of it is compared:
 *   'p' the getter of a property, 's' and 'c' the function of a static or class method,
 *   'i' a definition by identity, 'd' the type of plain data.
 * Facts of kind 'v', of data that count by identity, are made by `fill_value`. */
static char
describe(PyObject *value, PyObject **core)
{
    const char *part = NULL;
    char kind = 'i';
    if (PyObject_TypeCheck(value, &PyProperty_Type)) {
        part = "fget";
        kind = 'p';
    } else if (Py_TYPE(value) == &PyStaticMethod_Type) {
        part = "__func__";
        kind = 's';
    } else if (Py_TYPE(value) == &PyClassMethod_Type) {
        part = "__func__";
        kind = 'c';
    }
    if (part != NULL) {
        *core = PyObject_GetAttrString(value, part);
        if (*core != NULL)
            return kind;
        PyErr_Clear();
    }
    int slot = Py_TYPE(value) == &PyMemberDescr_Type || Py_TYPE(value) == &PyGetSetDescr_Type;
    int defined = PyType_Check(value) || PyModule_Check(value) || PyCallable_Check(value) ||
                  Py_TYPE(value)->tp_descr_get != NULL;
    if (defined && !slot) {
        *core = Py_NewRef(value);
        return 'i';
    }
    *core = Py_NewRef((PyObject *)Py_TYPE(value));
    return 'd';
}

/* value: borrowed, or NULL for what is absent. 0: no memory. */
static int
fill(Fact *fact, PyObject *name, PyObject *value)
{
    fact->name = Py_NewRef(name);
    if (value == NULL)
        return 1;
    PyObject *core;
    fact->kind = describe(value, &core);
    fact->ref = refer(core);
    Py_DECREF(core);
    return fact->ref != NULL;
}

static int
fill_value(Fact *fact, PyObject *name, PyObject *value)
{
    if (value == NULL) {
        PyErr_SetObject(PyExc_KeyError, name);
        return 0;
    }
    fact->name = Py_NewRef(name);
    fact->kind = 'v';
    fact->ref = refer(value);
    return fact->ref != NULL;
}

static int
holds(const Fact *fact, PyObject *value)
{
    if (fact->kind == 'v')
        return value == target(fact->ref);
    if (value == NULL || fact->ref == NULL)
        return value == NULL && fact->ref == NULL;
    PyObject *core;
    int same = describe(value, &core) == fact->kind && target(fact->ref) == core;
    Py_DECREF(core);
    return same;
}

static void
clear_watched(Watched *one)
{
    for (int i = 0; i < one->n; i++) {
        Py_XDECREF(one->facts[i].name);
        Py_XDECREF(one->facts[i].ref);
    }
    PyMem_Free(one->facts);
    Py_XDECREF(one->owner);
    Py_XDECREF(one->bases);
}

/* -- classes ----------------------------------------------------------------------------- */

/* 0 where the class has no version at present. */
static uint64_t
class_version(PyTypeObject *type)
{
#if PY_VERSION_HEX < 0x030C0000
    if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) {
        /* A look-up gives it one. */
        PyObject *name = PyUnicode_InternFromString("__class__");
        if (name == NULL)
            PyErr_Clear();
        else
            _PyType_Lookup(type, name);
        Py_XDECREF(name);
    }
    return type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG ? type->tp_version_tag : 0;
#else
    return PyUnstable_Type_AssignVersionTag(type) ? type->tp_version_tag : 0;
#endif
}

static PyObject *
class_dict(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyType_GetDict(type);
#else
    return Py_XNewRef(type->tp_dict);
#endif
}

/* Count, or fill, the facts of a class: what it defines itself of the names. -1: an error. */
static int
facts_of_class(PyObject *names, PyTypeObject *type, Fact *facts)
{
    PyObject *dict = class_dict(type), *name, *value;
    Py_ssize_t at = 0;
    int n = 0;
    if (dict == NULL)
        return -1;
    while (PyDict_Next(dict, &at, &name, &value)) {
        int wanted = PySet_Contains(names, name);
        if (wanted < 0 || (wanted && facts != NULL && !fill(&facts[n], name, value))) {
            n = -1;
            break;
        }
        n += wanted;
    }
    Py_DECREF(dict);
    return n;
}

static int
same_bases(const Watched *one, PyTypeObject *type)
{
    Py_ssize_t n = PyTuple_GET_SIZE(one->bases);
    if (type->tp_mro == NULL || PyTuple_GET_SIZE(type->tp_mro) != n)
        return 0;
    for (Py_ssize_t i = 0; i < n; i++)
        if (target(PyTuple_GET_ITEM(one->bases, i)) != PyTuple_GET_ITEM(type->tp_mro, i))
            return 0;
    return 1;
}

static int
class_holds(const Watch *self, const Watched *one, PyTypeObject *type)
{
    if (!same_bases(one, type) || facts_of_class(self->names, type, NULL) != one->n) {
        PyErr_Clear();
        return 0;
    }
    PyObject *dict = class_dict(type);
    int good = dict != NULL;
    for (int i = 0; good && i < one->n; i++) {
        PyObject *value = PyDict_GetItemWithError(dict, one->facts[i].name);
        good = value != NULL && holds(&one->facts[i], value);
    }
    PyErr_Clear();
    Py_XDECREF(dict);
    return good;
}

static int
watch_class(const Watch *self, Watched *one, PyObject *object)
{
    if (!PyType_Check(object) || ((PyTypeObject *)object)->tp_mro == NULL) {
        PyErr_SetString(PyExc_TypeError, "a class is expected");
        return 0;
    }
    PyTypeObject *type = (PyTypeObject *)object;
    one->version = class_version(type); /* first: what changes later is seen */
    int n = facts_of_class(self->names, type, NULL);
    Py_ssize_t n_bases = PyTuple_GET_SIZE(type->tp_mro);
    if (n < 0 || (one->owner = refer(object)) == NULL || (one->bases = PyTuple_New(n_bases)) == NULL)
        return 0;
    for (Py_ssize_t i = 0; i < n_bases; i++) {
        PyObject *base = refer(PyTuple_GET_ITEM(type->tp_mro, i));
        if (base == NULL)
            return 0;
        PyTuple_SET_ITEM(one->bases, i, base);
    }
    if ((one->facts = PyMem_Calloc(n + 1, sizeof(Fact))) == NULL)
        return 0;
    one->n = n;
    return facts_of_class(self->names, type, one->facts) == n;
}

/* -- dictionaries ------------------------------------------------------------------------ */

/* 0 where dictionaries have no versions. */
static uint64_t
dict_version(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030D0000
    return 0;
#elif PY_VERSION_HEX >= 0x030C0000
    return ((PyDictObject *)dict)->ma_version_tag >> 8; /* the lower bits hold who watches it */
#else
    return ((PyDictObject *)dict)->ma_version_tag;
#endif
}

static int
dict_holds(const Watched *one)
{
    if (one->size >= 0 && PyDict_GET_SIZE(one->owner) != one->size)
        return 0;
    for (int i = 0; i < one->n; i++) {
        PyObject *value = PyDict_GetItemWithError(one->owner, one->facts[i].name);
        if (!holds(&one->facts[i], value)) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

static int
watch_dict(Watched *one, PyObject *pair)
{
    PyObject *dict, *names;
    if (!PyArg_ParseTuple(pair, "O!O", &PyDict_Type, &dict, &names))
        return 0;
    if (names != Py_None && !PyTuple_CheckExact(names)) {
        PyErr_SetString(PyExc_TypeError, "names are a tuple, or None where the size counts");
        return 0;
    }
    int n = names == Py_None ? 0 : (int)PyTuple_GET_SIZE(names);
    one->owner = Py_NewRef(dict);
    one->version = dict_version(dict);
    one->size = names == Py_None ? PyDict_GET_SIZE(dict) : -1;
    if ((one->facts = PyMem_Calloc(n + 1, sizeof(Fact))) == NULL)
        return 0;
    one->n = n;
    for (int i = 0; i < n; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int by_identity = PyTuple_CheckExact(name) && PyTuple_GET_SIZE(name) == 1;
        if (by_identity)
            name = PyTuple_GET_ITEM(name, 0);
        PyObject *value = PyDict_GetItemWithError(dict, name);
        int good = by_identity ? fill_value(&one->facts[i], name, value)
                               : fill(&one->facts[i], name, value);
        if (!good || PyErr_Occurred())
            return 0;
    }
    return 1;
}

/* -- functions --------------------------------------------------------------------------- */

static int
function_holds(const Watched *one)
{
    PyObject *function = target(one->owner);
    return PyFunction_Check(function) &&
           PyFunction_GET_CODE(function) == target(one->facts[0].ref);
}

static int
watch_function(Watched *one, PyObject *function)
{
    if (!PyFunction_Check(function)) {
        PyErr_SetString(PyExc_TypeError, "a function is expected");
        return 0;
    }
    if ((one->owner = refer(function)) == NULL ||
        (one->facts = PyMem_Calloc(1, sizeof(Fact))) == NULL)
        return 0;
    one->n = 1;
    one->facts[0].kind = 'i';
    one->facts[0].name = PyUnicode_InternFromString("__code__");
    one->facts[0].ref = refer(PyFunction_GET_CODE(function));
    return one->facts[0].name != NULL && one->facts[0].ref != NULL;
}

/* -- abstract classes ------------------------------------------------------------------- */

static int
abstract_holds(Watch *self)
{
    PyObject *token = PyObject_CallNoArgs(get_token);
    int same = token == NULL ? -1 : PyObject_RichCompareBool(token, self->token, Py_EQ);
    if (same == 0) {
        PyObject *found = PyObject_CallNoArgs(self->abstract);
        same = found == NULL ? -1 : found == Py_True;
        Py_XDECREF(found);
        if (same == 1)
            Py_SETREF(self->token, Py_NewRef(token));
    }
    Py_XDECREF(token);
    if (same < 0)
        PyErr_Clear();
    return same == 1;
}

/* -- the check --------------------------------------------------------------------------- */

static int
check(Watch *self)
{
    for (int i = 0; i < self->n_functions; i++)
        if (!function_holds(&self->functions[i]))
            return 0;
    for (int i = 0; i < self->n_classes; i++) {
        Watched *one = &self->classes[i];
        PyTypeObject *type = (PyTypeObject *)target(one->owner);
        if (!PyType_Check((PyObject *)type))
            return 0;
        if (one->version != 0 && type->tp_version_tag == one->version
#if PY_VERSION_HEX < 0x030C0000
            && (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)
#endif
        )
            continue;
        uint64_t version = class_version(type);
        if (version != 0 && version == one->refused)
            return 0;
        if (!class_holds(self, one, type)) {
            one->refused = version;
            return 0;
        }
        one->version = version;
    }
    for (int i = 0; i < self->n_dicts; i++) {
        Watched *one = &self->dicts[i];
        uint64_t version = dict_version(one->owner);
        if (one->version == version && version != 0)
            continue;
        if (version != 0 && version == one->refused)
            return 0;
        if (!dict_holds(one)) {
            one->refused = version;
            return 0;
        }
        one->version = version;
    }
    return self->abstract == NULL || abstract_holds(self);
}

static PyObject *
watch_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (PyVectorcall_NARGS(nargsf) > 1 || kwnames != NULL) {
        PyErr_SetString(PyExc_TypeError, "a watch takes at most one argument, which it ignores");
        return NULL;
    }
    return Py_NewRef(check((Watch *)object) ? Py_True : Py_False);
}

/* -- what changed ------------------------------------------------------------------------ */

static int
add_row(PyObject *rows, PyObject *owner, const char *what, PyObject *old, PyObject *new)
{
    PyObject *missing = Py_Ellipsis;
    PyObject *row = Py_BuildValue("(OsOO)", owner, what, old ? old : missing, new ? new : missing);
    int good = row != NULL && PyList_Append(rows, row) == 0;
    Py_XDECREF(row);
    return good;
}

static int
add_facts(PyObject *rows, PyObject *owner, PyObject *dict, const Watched *one)
{
    for (int i = 0; i < one->n; i++) {
        const Fact *fact = &one->facts[i];
        PyObject *value = PyDict_GetItemWithError(dict, fact->name);
        PyObject *old = fact->ref == NULL ? NULL : target(fact->ref);
        const char *name = PyUnicode_AsUTF8(fact->name);
        if (name == NULL)
            return 0;
        if (!holds(fact, value) && !add_row(rows, owner, name, old, value))
            return 0;
    }
    return 1;
}

/* Names that a class defines now and did not define. */
static int
add_new_names(PyObject *rows, const Watch *self, const Watched *one, PyObject *type, PyObject *dict)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &name, &value)) {
        int known = PySet_Contains(self->names, name) != 1;
        for (int i = 0; !known && i < one->n; i++)
            known = PyObject_RichCompareBool(one->facts[i].name, name, Py_EQ) == 1;
        const char *text = PyUnicode_AsUTF8(name);
        if (text == NULL || (!known && !add_row(rows, type, text, NULL, value)))
            return 0;
    }
    return 1;
}

static PyObject *
watch_changed(Watch *self, PyObject *Py_UNUSED(none))
{
    PyObject *rows = PyList_New(0);
    int good = rows != NULL;
    for (int i = 0; good && i < self->n_functions; i++) {
        const Watched *one = &self->functions[i];
        PyObject *function = target(one->owner);
        if (!function_holds(one))
            good = add_row(rows, function, "__code__", target(one->facts[0].ref),
                           PyFunction_Check(function) ? PyFunction_GET_CODE(function) : NULL);
    }
    for (int i = 0; good && i < self->n_classes; i++) {
        const Watched *one = &self->classes[i];
        PyObject *type = target(one->owner);
        if (!PyType_Check(type)) {
            good = add_row(rows, Py_None, "a class", NULL, NULL);
            continue;
        }
        if (!same_bases(one, (PyTypeObject *)type))
            good = add_row(rows, type, "__mro__", NULL, ((PyTypeObject *)type)->tp_mro);
        PyObject *dict = class_dict((PyTypeObject *)type);
        good = good && dict != NULL && add_facts(rows, type, dict, one) &&
               add_new_names(rows, self, one, type, dict);
        Py_XDECREF(dict);
    }
    for (int i = 0; good && i < self->n_dicts; i++) {
        const Watched *one = &self->dicts[i];
        good = add_facts(rows, one->owner, one->owner, one);
        if (good && one->size >= 0 && PyDict_GET_SIZE(one->owner) != one->size)
            good = add_row(rows, one->owner, "its size", NULL, NULL);
    }
    if (good && self->abstract != NULL && !abstract_holds(self))
        good = add_row(rows, Py_None, "the registry of an abstract class", NULL, NULL);
    if (!good)
        Py_CLEAR(rows);
    return rows;
}

/* -- the type ---------------------------------------------------------------------------- */

static int
watch_fill(Watch *self, PyObject *classes, PyObject *dicts, PyObject *functions)
{
    Py_ssize_t n_classes = PyTuple_GET_SIZE(classes), n_dicts = PyTuple_GET_SIZE(dicts);
    Py_ssize_t n_functions = PyTuple_GET_SIZE(functions);
    self->classes = PyMem_Calloc(n_classes + 1, sizeof(Watched));
    self->dicts = PyMem_Calloc(n_dicts + 1, sizeof(Watched));
    self->functions = PyMem_Calloc(n_functions + 1, sizeof(Watched));
    if (self->classes == NULL || self->dicts == NULL || self->functions == NULL)
        return 0;
    for (int i = 0; i < n_functions; i++, self->n_functions++)
        if (!watch_function(&self->functions[i], PyTuple_GET_ITEM(functions, i)))
            return self->n_functions++, 0;
    for (int i = 0; i < n_classes; i++, self->n_classes++)
        if (!watch_class(self, &self->classes[i], PyTuple_GET_ITEM(classes, i)))
            return self->n_classes++, 0;
    for (int i = 0; i < n_dicts; i++, self->n_dicts++)
        if (!watch_dict(&self->dicts[i], PyTuple_GET_ITEM(dicts, i)))
            return self->n_dicts++, 0;
    return 1;
}

static PyObject *
watch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *names, *classes, *dicts, *functions, *abstract;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O", &PyFrozenSet_Type, &names, &PyTuple_Type, &classes,
                          &PyTuple_Type, &dicts, &PyTuple_Type, &functions, &abstract))
        return NULL;
    Watch *self = (Watch *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = watch_vectorcall;
    self->names = Py_NewRef(names);
    self->token = PyObject_CallNoArgs(get_token);
    self->abstract = abstract == Py_None ? NULL : Py_NewRef(abstract);
    if (self->token == NULL || !watch_fill(self, classes, dicts, functions)) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int
visit_all(const Watched *all, int n, visitproc visit, void *arg)
{
    for (int i = 0; i < n; i++) {
        Py_VISIT(all[i].owner);
        for (int k = 0; k < all[i].n; k++)
            Py_VISIT(all[i].facts[k].ref);
    }
    return 0;
}

static int
watch_traverse(Watch *self, visitproc visit, void *arg)
{
    Py_VISIT(self->abstract);
    int found = visit_all(self->classes, self->n_classes, visit, arg);
    if (!found)
        found = visit_all(self->dicts, self->n_dicts, visit, arg);
    return found ? found : visit_all(self->functions, self->n_functions, visit, arg);
}

static int
watch_clear(Watch *self)
{
    int n_classes = self->n_classes, n_dicts = self->n_dicts, n_functions = self->n_functions;
    self->n_classes = self->n_dicts = self->n_functions = 0;
    for (int i = 0; i < n_classes; i++)
        clear_watched(&self->classes[i]);
    for (int i = 0; i < n_dicts; i++)
        clear_watched(&self->dicts[i]);
    for (int i = 0; i < n_functions; i++)
        clear_watched(&self->functions[i]);
    Py_CLEAR(self->abstract);
    return 0;
}

static void
watch_dealloc(Watch *self)
{
    PyObject_GC_UnTrack(self);
    watch_clear(self);
    PyMem_Free(self->classes);
    PyMem_Free(self->dicts);
    PyMem_Free(self->functions);
    Py_XDECREF(self->names);
    Py_XDECREF(self->token);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef watch_methods[] = {
    {"changed", (PyCFunction)watch_changed, METH_NOARGS,
     "Return what differs: tuples of owner, name, old and new value; ... for what is absent."},
    {NULL},
};

static PyTypeObject WatchType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tc_watch.Watch",
    .tp_doc = "Watch(names, classes, pairs of dictionary and names, functions, abstract or None)",
    .tp_basicsize = sizeof(Watch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall_offset = offsetof(Watch, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = watch_new,
    .tp_dealloc = (destructor)watch_dealloc,
    .tp_traverse = (traverseproc)watch_traverse,
    .tp_clear = (inquiry)watch_clear,
    .tp_methods = watch_methods,
};

static struct PyModuleDef watch_module = {
    PyModuleDef_HEAD_INIT, "tc_watch", "Checks that definitions stay as they were.", -1,
};

PyMODINIT_FUNC
PyInit_tc_watch(void)
{
    PyObject *m = NULL, *abc = PyImport_ImportModule("abc");
    if (abc == NULL || (get_token = PyObject_GetAttrString(abc, "get_cache_token")) == NULL) {
        Py_XDECREF(abc);
        return NULL;
    }
    Py_DECREF(abc);
    if (PyType_Ready(&WatchType) < 0 || (m = PyModule_Create(&watch_module)) == NULL)
        return NULL;
    if (PyModule_AddObjectRef(m, "Watch", (PyObject *)&WatchType) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
