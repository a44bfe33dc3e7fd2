/* Memo: a check of many facts about one object, done in full once and then remembered.
 *
 * A memo knows steps: instance dictionaries and items of dictionaries below a root object. When the
 * full check has passed it notes which objects the steps led to, and the version of each dictionary.
 * As long as these are the same, so is everything that the full check looked at, and it need not
 * run. Python gives each change of a dictionary a version that no dictionary ever has again.
 *
 * Some of the objects may be wanted: they go, as a tuple, to a check of their own at each call; a
 * memo without a full check returns them.
 *
 * Threads: all of this runs with the GIL, which whatever calls Python or makes an object may give up
 * for a while. A record does not change once it is there, and whoever reads one holds it.
 *
 * Nothing is kept alive: the steps are walked from the root down, and an object that an unchanged
 * dictionary holds is alive.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>

#define RECORDS 8    /* roots remembered at a time */
#define PATIENCE 256 /* full checks in a row after which nothing is remembered any more */

typedef struct {
    int parent;    /* the step that this one starts at; -1 at the root */
    PyObject *key; /* of an item; NULL where the step is the instance dictionary */
} Step;

typedef struct {
    PyObject *value;    /* borrowed */
    PyTypeObject *type; /* NULL where the type of the value cannot change */
    uint64_t version;   /* of a dictionary, else 0 */
} Seen;

typedef struct {
    int users; /* the memo, and calls that are under way */
    Seen seen[];
} Record;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *full;  /* NULL: return what is wanted */
    PyObject *each;  /* the check of what is wanted, or NULL */
    int n;
    int n_wanted;
    int *wanted;
    int next;
    int misses;
    Step *steps;
    Record *records[RECORDS];
} Memo;

static void
record_release(Record *record)
{
    if (record != NULL && --record->users == 0)
        PyMem_Free(record);
}

static uint64_t
version_of(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030C0000
    return ((PyDictObject *)dict)->ma_version_tag >> 8; /* the lower bits hold who watches it */
#else
    return ((PyDictObject *)dict)->ma_version_tag;
#endif
}

static PyObject *
instance_dict(PyObject *object)
{
    PyObject **place = _PyObject_GetDictPtr(object);
    return place == NULL ? NULL : *place;
}

static int
still(const Memo *self, const Seen *seen)
{
    for (int i = 0; i < self->n; i++) {
        const Seen *one = &seen[i];
        const Step *step = &self->steps[i];
        if (step->key == NULL && step->parent >= 0 &&
            instance_dict(seen[step->parent].value) != one->value)
            return 0;
        if (one->type != NULL && Py_TYPE(one->value) != one->type)
            return 0;
        if (one->version != 0 && version_of(one->value) != one->version)
            return 0;
    }
    return 1;
}

static int
note(const Memo *self, Seen *seen, PyObject *root)
{
    for (int i = 0; i < self->n; i++) {
        const Step *step = &self->steps[i];
        PyObject *value = root;
        if (step->parent >= 0) {
            PyObject *base = seen[step->parent].value;
            if (step->key == NULL)
                value = instance_dict(base);
            else
                value = PyDict_Check(base) ? PyDict_GetItemWithError(base, step->key) : NULL;
        }
        if (value == NULL) {
            PyErr_Clear();
            return 0;
        }
        int heap = (Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
        seen[i].value = value;
        seen[i].type = heap ? Py_TYPE(value) : NULL;
        seen[i].version = PyDict_Check(value) ? version_of(value) : 0;
    }
    return 1;
}

/* What is wanted, taken while all is as noted; NULL without an error set: it is not any more. */
static PyObject *
take(const Memo *self, const Seen *seen)
{
    PyObject *wanted = PyTuple_New(self->n_wanted); /* before looking: other threads may run */
    if (wanted == NULL)
        return NULL;
    if (!still(self, seen)) {
        Py_DECREF(wanted);
        return NULL;
    }
    for (int i = 0; i < self->n_wanted; i++)
        PyTuple_SET_ITEM(wanted, i, Py_NewRef(seen[self->wanted[i]].value));
    return wanted;
}

/* The result while all is as noted; NULL without an error set: it is not any more. */
static PyObject *
finish(const Memo *self, const Seen *seen)
{
    if (self->n_wanted == 0)
        return still(self, seen) ? Py_NewRef(Py_True) : NULL;
    PyObject *wanted = take(self, seen);
    if (wanted == NULL || self->full == NULL)
        return wanted;
    PyObject *passed = PyObject_CallOneArg(self->each, wanted);
    Py_DECREF(wanted);
    return passed;
}

/* Other threads may run, and check with this memo, while the full check does. So what is noted is
 * noted before it, is compared after it, and becomes a record last of all. */
static PyObject *
check_in_full(Memo *self, PyObject *root, int place)
{
    Record *record = PyMem_Calloc(1, sizeof(Record) + self->n * sizeof(Seen));
    if (record == NULL)
        return PyErr_NoMemory();
    record->users = 1;
    int found = note(self, record->seen, root);
    PyObject *passed = self->full == NULL ? Py_NewRef(Py_True)
                                          : PyObject_CallOneArg(self->full, root);
    if (passed == Py_True) {
        Py_DECREF(passed);
        passed = found ? finish(self, record->seen) : NULL;
        if (passed != NULL && self->misses < PATIENCE) {
            Record *old = self->records[place];
            self->records[place] = record;
            self->next = (place + 1) % RECORDS;
            self->misses++;
            record = old;
        }
        if (passed == NULL && !PyErr_Occurred()) { /* it cannot be remembered, or has changed */
            if (self->full == NULL)
                PyErr_SetString(PyExc_RuntimeError,
                                "what the code reads has changed since its guards passed");
            else
                passed = Py_NewRef(self->n_wanted ? Py_False : Py_True);
        }
    }
    record_release(record);
    return passed;
}

static PyObject *
memo_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Memo *self = (Memo *)object;
    if (PyVectorcall_NARGS(nargsf) != 1 || kwnames != NULL) {
        PyErr_SetString(PyExc_TypeError, "a memo takes one positional argument");
        return NULL;
    }
    PyObject *root = args[0];
    int place = self->next;
    for (int i = 0; i < RECORDS; i++) {
        Record *record = self->records[i];
        if (record == NULL || record->seen[0].value != root)
            continue;
        record->users++;
        PyObject *result = finish(self, record->seen);
        record_release(record);
        if (result != NULL || PyErr_Occurred()) {
            self->misses = 0;
            return result;
        }
        place = i;
    }
    return check_in_full(self, root, place);
}

static int
set_step(Memo *self, int i, PyObject *step)
{
    PyObject *key;
    if (!PyArg_ParseTuple(step, "iO", &self->steps[i].parent, &key))
        return 0;
    if (self->steps[i].parent >= i || (self->steps[i].parent < 0) != (i == 0)) {
        PyErr_SetString(PyExc_ValueError, "a step starts at one before it, the first at none");
        return 0;
    }
    self->steps[i].key = key == Py_None ? NULL : Py_NewRef(key);
    self->n = i + 1;
    return 1;
}

static int
set_wanted(Memo *self, int i, PyObject *number)
{
    long step = PyLong_AsLong(number);
    if (step < 0 || step >= self->n) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no such step");
        return 0;
    }
    self->wanted[i] = (int)step;
    self->n_wanted = i + 1;
    return 1;
}

static PyObject *
memo_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *steps, *wanted, *full, *each;
    if (!PyArg_ParseTuple(args, "O!OO!O", &PyTuple_Type, &steps, &full, &PyTuple_Type, &wanted,
                          &each))
        return NULL;
    Memo *self = (Memo *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    int n = (int)PyTuple_GET_SIZE(steps), n_wanted = (int)PyTuple_GET_SIZE(wanted);
    self->vectorcall = memo_vectorcall;
    self->full = full == Py_None ? NULL : Py_NewRef(full);
    self->each = each == Py_None ? NULL : Py_NewRef(each);
    self->steps = PyMem_Calloc(n + 1, sizeof(Step));
    self->wanted = PyMem_Calloc(n_wanted + 1, sizeof(int));
    int good = self->steps != NULL && self->wanted != NULL;
    for (int i = 0; good && i < n; i++)
        good = set_step(self, i, PyTuple_GET_ITEM(steps, i));
    for (int i = 0; good && i < n_wanted; i++)
        good = set_wanted(self, i, PyTuple_GET_ITEM(wanted, i));
    if (good && (n == 0 || (n_wanted == 0) != (self->each == NULL && self->full != NULL))) {
        PyErr_SetString(PyExc_ValueError, "a memo needs steps, and a check of what is wanted");
        good = 0;
    }
    if (!good) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void
memo_dealloc(Memo *self)
{
    Py_XDECREF(self->full);
    Py_XDECREF(self->each);
    for (int i = 0; i < self->n; i++)
        Py_XDECREF(self->steps[i].key);
    for (int i = 0; i < RECORDS; i++)
        record_release(self->records[i]);
    PyMem_Free(self->steps);
    PyMem_Free(self->wanted);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef memo_members[] = {
    {"misses", T_INT, offsetof(Memo, misses), READONLY, "full checks since one was saved"},
    {NULL},
};

static PyTypeObject MemoType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tc_memo.Memo",
    .tp_doc = "Memo(steps, full or None, wanted, check of what is wanted or None)",
    .tp_basicsize = sizeof(Memo),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Memo, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = memo_new,
    .tp_dealloc = (destructor)memo_dealloc,
    .tp_members = memo_members,
};

static struct PyModuleDef memo_module = {
    PyModuleDef_HEAD_INIT, "tc_memo", "Checks that are remembered while dictionaries stay.", -1,
};

PyMODINIT_FUNC
PyInit_tc_memo(void)
{
    PyObject *m = NULL;
    if (PyType_Ready(&MemoType) < 0 || (m = PyModule_Create(&memo_module)) == NULL)
        return NULL;
    if (PyModule_AddObjectRef(m, "Memo", (PyObject *)&MemoType) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
