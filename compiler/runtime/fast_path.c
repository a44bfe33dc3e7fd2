/* FastPath: the way past the frame hook for calls that compiled code was made for.
 *
 * A compiled function asks its fast path first, which looks at the arguments and at what else the
 * code rests on; where all is as expected it calls the code, else it returns `MISS` and the frame
 * hook decides. An entry has places, where values are found, tests of these values, one check of all
 * tensors among them, and one relation of their sizes, strides and of numbers.
 *
 * Threads: all of this runs with the GIL, which a test or check may give up for a while, as may
 * whatever frees an object. So a call holds the entry and the values that it looks at, and all fast
 * paths lose their entries at once, by the epoch: entries of an earlier one count for nothing.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define ENTRIES 4  /* of a fast path; a newer one takes the place of the oldest */
#define PLACES 32  /* of an entry */
#define FIRST_TRY 16 /* calls past a closed fast path until it asks to be opened; twice as many later */

typedef struct {
    PyObject *owner; /* a dict, a cell, or NULL: the arguments */
    PyObject *key;   /* of the dict */
    Py_ssize_t index; /* of the argument */
} Place;

typedef struct {
    char kind; /* 'i' this very object, 't' of this type, 'f' a function with this code, 'b' an
                  int of so many bits besides its sign, '=' equal and of one type, 'c' a call without arguments returns this */
    int place;
    PyObject *of;       /* what is called */
    PyObject *expected; /* a value; not held are objects and types, known by their address */
    void *address;
} Test;

typedef struct {
    int users; /* the fast path, and calls that are under way */
    PyObject *function;
    Py_ssize_t n_args;
    int n_places, n_tests, n_tensors;
    Place *places;
    Test *tests;
    int *tensors;          /* places of tensors */
    int tensors_are_args;  /* they are the arguments, in order */
    PyObject *check;       /* of a tuple of the tensors, or NULL */
    PyObject *relation;    /* of the values at some places, or NULL; asked when all else holds */
    int n_related;
    int *related;
} Entry;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;   /* the function that the fast path belongs to */
    PyObject *code; /* its code when the entries were made */
    PyObject *weak;
    int n, next;
    unsigned long long epoch; /* in which the entries were made */
    Py_ssize_t misses, patience;
    Entry *entries[ENTRIES];
} FastPath;

static PyObject *MISS;
static unsigned long long epoch = 1; /* counts how often all fast paths were closed */

static void
entry_release(Entry *entry)
{
    if (entry == NULL || --entry->users > 0)
        return;
    for (int i = 0; i < entry->n_places; i++) {
        Py_XDECREF(entry->places[i].owner);
        Py_XDECREF(entry->places[i].key);
    }
    for (int i = 0; i < entry->n_tests; i++) {
        Py_XDECREF(entry->tests[i].of);
        Py_XDECREF(entry->tests[i].expected);
    }
    Py_XDECREF(entry->function);
    Py_XDECREF(entry->check);
    Py_XDECREF(entry->relation);
    PyMem_Free(entry->related);
    PyMem_Free(entry->places);
    PyMem_Free(entry->tests);
    PyMem_Free(entry->tensors);
    PyMem_Free(entry);
}

/* A new reference, or NULL, where an error may be set. */
static PyObject *
value_at(const Place *place, PyObject *args)
{
    PyObject *value;
    if (place->owner == NULL)
        value = PyTuple_GET_ITEM(args, place->index);
    else if (PyCell_Check(place->owner))
        value = PyCell_GET(place->owner);
    else
        value = PyDict_GetItemWithError(place->owner, place->key);
    return Py_XNewRef(value);
}

/* 1: as expected, 0: not, -1: an error is set */
static int
passes(const Test *test, PyObject *value)
{
    switch (test->kind) {
    case 'i':
        return (void *)value == test->address;
    case 't':
        return (void *)Py_TYPE(value) == test->address;
    case 'f':
        return PyFunction_Check(value) && PyFunction_GET_CODE(value) == test->address;
    case 'b': {
        int overflow;
        if (!PyLong_CheckExact(value))
            return 0;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        number >>= (Py_uintptr_t)test->address;
        return !overflow && (number == 0 || number == -1);
    }
    case '=':
        if (value == test->expected)
            return 1;
        if (Py_TYPE(value) != Py_TYPE(test->expected))
            return 0;
        return PyObject_RichCompareBool(value, test->expected, Py_EQ);
    default: {
        PyObject *found = PyObject_CallNoArgs(test->of);
        if (found == NULL)
            return -1;
        int same = PyObject_RichCompareBool(found, test->expected, Py_EQ);
        Py_DECREF(found);
        return same;
    }
    }
}

/* Whether a check of some values is true; -1: an error is set */
static int
agrees(PyObject *check, const int *places, int n, PyObject *const *values)
{
    PyObject *asked[PLACES];
    for (int i = 0; i < n; i++)
        asked[i] = values[places[i]];
    PyObject *found = PyObject_Vectorcall(check, asked, n, NULL);
    if (found == NULL)
        return -1;
    Py_DECREF(found); /* True and False live on */
    return found == Py_True;
}

static int
admits_tensors(const Entry *entry, PyObject *args, PyObject *const *values)
{
    int admitted = 1;
    if (entry->check != NULL && entry->tensors_are_args) {
        PyObject *found = PyObject_Call(entry->check, args, NULL);
        if (found == NULL)
            return -1;
        Py_DECREF(found);
        admitted = found == Py_True;
    } else if (entry->check != NULL) {
        admitted = agrees(entry->check, entry->tensors, entry->n_tensors, values);
    }
    if (admitted == 1 && entry->relation != NULL)
        admitted = agrees(entry->relation, entry->related, entry->n_related, values);
    return admitted;
}

static int
admits_values(const Entry *entry, PyObject *args, PyObject *const *values)
{
    for (int i = 0; i < entry->n_tests; i++) {
        const Test *test = &entry->tests[i];
        int passed = passes(test, test->of == NULL ? values[test->place] : NULL);
        if (passed != 1)
            return passed;
    }
    return admits_tensors(entry, args, values);
}

static int
admits(const Entry *entry, PyObject *args)
{
    PyObject *values[PLACES];
    int n = 0, admitted = 1;
    if (PyTuple_GET_SIZE(args) != entry->n_args)
        return 0;
    while (admitted == 1 && n < entry->n_places) {
        values[n] = value_at(&entry->places[n], args);
        if (values[n] == NULL)
            admitted = PyErr_Occurred() ? -1 : 0;
        else
            n++;
    }
    if (admitted == 1)
        admitted = admits_values(entry, args, values);
    while (n > 0)
        Py_DECREF(values[--n]);
    return admitted;
}

static PyObject *fast_path_close(FastPath *self, PyObject *none);

static PyObject *
fast_path_vectorcall(PyObject *object, PyObject *const *given, size_t nargsf, PyObject *kwnames)
{
    FastPath *self = (FastPath *)object;
    if (PyVectorcall_NARGS(nargsf) != 1 || kwnames != NULL || !PyTuple_CheckExact(given[0])) {
        PyErr_SetString(PyExc_TypeError, "a fast path takes one tuple: the arguments of the call");
        return NULL;
    }
    PyObject *args = given[0];
    if (self->n && self->epoch != epoch)
        Py_DECREF(fast_path_close(self, NULL));
    if (self->n && ((PyFunctionObject *)self->fn)->func_code == self->code) {
        for (int i = 0; i < self->n && self->epoch == epoch; i++) {
            /* Other threads may run, and close the fast path: the entry is held meanwhile. */
            Entry *entry = self->entries[i];
            entry->users++;
            int admitted = admits(entry, args);
            if (self->epoch != epoch)
                admitted = 0;
            PyObject *result = NULL;
            if (admitted == 1)
                result = PyObject_Vectorcall(entry->function, ((PyTupleObject *)args)->ob_item,
                                             PyTuple_GET_SIZE(args), NULL);
            entry_release(entry);
            if (admitted == 1)
                return result;
            if (admitted < 0)
                PyErr_Clear(); /* the hook's guards drop errors as well */
        }
    }
    self->misses++;
    return Py_NewRef(MISS);
}

static int
fill_places(Entry *entry, PyObject *places)
{
    for (int i = 0; i < entry->n_places; i++) {
        Place *place = &entry->places[i];
        PyObject *item = PyTuple_GET_ITEM(places, i), *owner, *key;
        if (PyLong_Check(item)) {
            place->index = PyLong_AsSsize_t(item);
            if (place->index < 0 || place->index >= entry->n_args)
                return 0;
        } else if (PyCell_Check(item)) {
            place->owner = Py_NewRef(item);
        } else if (PyArg_ParseTuple(item, "O!O", &PyDict_Type, &owner, &key)) {
            place->owner = Py_NewRef(owner);
            place->key = Py_NewRef(key);
        } else {
            return 0;
        }
    }
    return 1;
}

static int
fill_tests(Entry *entry, PyObject *tests)
{
    for (int i = 0; i < entry->n_tests; i++) {
        Test *test = &entry->tests[i];
        int kind;
        PyObject *of, *expected;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tests, i), "COO", &kind, &of, &expected))
            return 0;
        test->kind = (char)kind;
        if (kind == 'c') {
            test->of = Py_NewRef(of);
            test->expected = Py_NewRef(expected);
            continue;
        }
        test->place = (int)PyLong_AsLong(of);
        if (strchr("itfb=", kind) == NULL || test->place < 0 || test->place >= entry->n_places)
            return 0;
        if (kind == '=')
            test->expected = Py_NewRef(expected);
        else if ((test->address = PyLong_AsVoidPtr(expected)) == NULL)
            return 0;
    }
    return 1;
}

/* The numbers of places of an entry */
static int
fill_numbers(const Entry *entry, int *into, int n, PyObject *numbers)
{
    for (int i = 0; i < n; i++) {
        into[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(numbers, i));
        if (into[i] < 0 || into[i] >= entry->n_places)
            return 0;
    }
    return 1;
}

static int
fill_tensors(Entry *entry, PyObject *tensors)
{
    if (!fill_numbers(entry, entry->tensors, entry->n_tensors, tensors))
        return 0;
    entry->tensors_are_args = entry->n_tensors == entry->n_args;
    for (int i = 0; i < entry->n_tensors; i++) {
        const Place *place = &entry->places[entry->tensors[i]];
        if (place->owner != NULL || place->index != i)
            entry->tensors_are_args = 0;
    }
    return 1;
}

static PyObject *
fast_path_add(FastPath *self, PyObject *args)
{
    PyObject *function, *places, *tests, *tensors, *check, *relation, *related;
    Py_ssize_t n_args;
    unsigned long long known_in;
    if (!PyArg_ParseTuple(args, "KOnO!O!O!OOO!", &known_in, &function, &n_args, &PyTuple_Type, &places,
                          &PyTuple_Type, &tests, &PyTuple_Type, &tensors, &check, &relation,
                          &PyTuple_Type, &related))
        return NULL;
    Entry *entry = PyMem_Calloc(1, sizeof(Entry));
    if (entry == NULL)
        return PyErr_NoMemory();
    entry->users = 1;
    entry->places = PyMem_Calloc(PyTuple_GET_SIZE(places) + 1, sizeof(Place));
    entry->tests = PyMem_Calloc(PyTuple_GET_SIZE(tests) + 1, sizeof(Test));
    entry->tensors = PyMem_Calloc(PyTuple_GET_SIZE(tensors) + 1, sizeof(int));
    entry->related = PyMem_Calloc(PyTuple_GET_SIZE(related) + 1, sizeof(int));
    int good = entry->places != NULL && entry->tests != NULL && entry->tensors != NULL &&
               entry->related != NULL && PyTuple_GET_SIZE(places) <= PLACES &&
               PyTuple_GET_SIZE(tensors) <= PLACES && PyTuple_GET_SIZE(related) <= PLACES;
    if (good) {
        entry->function = Py_NewRef(function);
        entry->n_args = n_args;
        entry->n_places = (int)PyTuple_GET_SIZE(places);
        entry->n_tests = (int)PyTuple_GET_SIZE(tests);
        entry->n_tensors = (int)PyTuple_GET_SIZE(tensors);
        entry->n_related = (int)PyTuple_GET_SIZE(related);
        entry->check = check == Py_None ? NULL : Py_NewRef(check);
        entry->relation = relation == Py_None ? NULL : Py_NewRef(relation);
        good = fill_places(entry, places) && fill_tests(entry, tests) &&
               fill_tensors(entry, tensors) && (check != Py_None || entry->n_tensors == 0) &&
               fill_numbers(entry, entry->related, entry->n_related, related);
    }
    if (!good) {
        entry_release(entry);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no such place or test, or too many of them");
        return NULL;
    }
    if (self->n && self->epoch != epoch)
        Py_DECREF(fast_path_close(self, NULL));
    PyObject *code = ((PyFunctionObject *)self->fn)->func_code;
    Py_XSETREF(self->code, Py_NewRef(code));
    /* Nothing is called from here on until the entry is in its place. */
    if (known_in != epoch) {
        entry_release(entry);
        Py_RETURN_FALSE;
    }
    self->epoch = epoch;
    Entry *old = self->entries[self->next];
    self->entries[self->next] = entry;
    self->next = (self->next + 1) % ENTRIES;
    if (self->n < ENTRIES)
        self->n++;
    self->misses = 0;
    entry_release(old);
    Py_RETURN_TRUE;
}

static PyObject *
fast_path_entries(FastPath *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(self->epoch == epoch ? self->n : 0);
}

static PyObject *
fast_path_epoch(FastPath *Py_UNUSED(self), void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(epoch);
}

static PyObject *
close_all(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    epoch++;
    Py_RETURN_NONE;
}

static PyObject *
fast_path_close(FastPath *self, PyObject *Py_UNUSED(none))
{
    Entry *old[ENTRIES];
    memcpy(old, self->entries, sizeof(old));
    memset(self->entries, 0, sizeof(old));
    self->n = self->next = 0;
    self->misses = 0;
    self->patience = FIRST_TRY;
    for (int i = 0; i < ENTRIES; i++)
        entry_release(old[i]);
    Py_RETURN_NONE;
}

static PyObject *
fast_path_due(FastPath *self, void *Py_UNUSED(closure))
{
    if (self->misses < self->patience)
        Py_RETURN_FALSE;
    self->misses = 0;
    if (self->patience < PY_SSIZE_T_MAX / 2)
        self->patience *= 2;
    Py_RETURN_TRUE;
}

static PyObject *
fast_path_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *fn;
    if (!PyArg_ParseTuple(args, "O!", &PyFunction_Type, &fn))
        return NULL;
    FastPath *self = (FastPath *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = fast_path_vectorcall;
    self->fn = Py_NewRef(fn);
    self->patience = FIRST_TRY;
    return (PyObject *)self;
}

static int
fast_path_traverse(FastPath *self, visitproc visit, void *arg)
{
    Py_VISIT(self->fn);
    Py_VISIT(self->code);
    for (int i = 0; i < ENTRIES; i++) {
        const Entry *entry = self->entries[i];
        if (entry == NULL)
            continue;
        Py_VISIT(entry->function);
        Py_VISIT(entry->check);
        Py_VISIT(entry->relation);
        for (int k = 0; k < entry->n_places; k++)
            Py_VISIT(entry->places[k].owner);
        for (int k = 0; k < entry->n_tests; k++) {
            Py_VISIT(entry->tests[k].of);
            Py_VISIT(entry->tests[k].expected);
        }
    }
    return 0;
}

static int
fast_path_clear(FastPath *self)
{
    Py_DECREF(fast_path_close(self, NULL));
    Py_CLEAR(self->code);
    return 0; /* `fn` stays: a fast path without one would not know what it opens */
}

static void
fast_path_dealloc(FastPath *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weak != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    fast_path_clear(self);
    Py_CLEAR(self->fn);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef fast_path_methods[] = {
    {"add", (PyCFunction)fast_path_add, METH_VARARGS,
     "add(epoch, function, number of arguments, places, tests, places of tensors, check of tensors, "
     "relation of values, their places): whether it was added, which it is not if all fast paths "
     "were closed since that epoch"},
    {"close", (PyCFunction)fast_path_close, METH_NOARGS, "Forget all entries."},
    {NULL},
};

static PyGetSetDef fast_path_getset[] = {
    {"due", (getter)fast_path_due, NULL, "whether so many calls missed that it should be opened", NULL},
    {"entries", (getter)fast_path_entries, NULL, "how many entries there are", NULL},
    {"epoch", (getter)fast_path_epoch, NULL, "how often all fast paths were closed", NULL},
    {NULL},
};

static PyMemberDef fast_path_members[] = {
    {"misses", T_PYSSIZET, offsetof(FastPath, misses), READONLY, "calls not let through, of late"},
    {NULL},
};

static PyTypeObject FastPathType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tc_fast_path.FastPath",
    .tp_doc = "FastPath(function): calls compiled code with a tuple of arguments, or returns MISS",
    .tp_basicsize = sizeof(FastPath),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall_offset = offsetof(FastPath, vectorcall),
    .tp_weaklistoffset = offsetof(FastPath, weak),
    .tp_call = PyVectorcall_Call,
    .tp_new = fast_path_new,
    .tp_dealloc = (destructor)fast_path_dealloc,
    .tp_traverse = (traverseproc)fast_path_traverse,
    .tp_clear = (inquiry)fast_path_clear,
    .tp_methods = fast_path_methods,
    .tp_getset = fast_path_getset,
    .tp_members = fast_path_members,
};

static PyMethodDef fast_path_functions[] = {
    {"close_all", close_all, METH_NOARGS, "Forget all entries of all fast paths."},
    {NULL},
};

static struct PyModuleDef fast_path_module = {
    PyModuleDef_HEAD_INIT, "tc_fast_path", "Calls compiled code past the frame hook.", -1, fast_path_functions,
};

PyMODINIT_FUNC
PyInit_tc_fast_path(void)
{
    PyObject *m = NULL;
    if (PyType_Ready(&FastPathType) < 0 || (m = PyModule_Create(&fast_path_module)) == NULL)
        return NULL;
    if (MISS == NULL)
        MISS = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (MISS == NULL || PyModule_AddObjectRef(m, "MISS", MISS) < 0 ||
        PyModule_AddObjectRef(m, "FastPath", (PyObject *)&FastPathType) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
