/* Kernel: a compiled function that is called with tensors, and costs little more than the call.
 *
 * A kernel takes pointers and 64-bit integers, which travel in the same registers and stack slots,
 * and at most eight doubles, which travel in registers of their own. Both the System V x86-64 and
 * the AArch64 calling conventions let the caller pass more than the callee looks at, so a handful
 * of prototypes serves all kernels.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_INTS 96
#define MAX_DOUBLES 8

typedef void *(*data_ptr_function)(PyObject *);

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    void *function;
    PyObject *name;
    int release_gil;
    PyObject *on_fault; /* called with what the function returns, if not 0; may be NULL */
    int n_ints;
    int n_doubles;
    Py_ssize_t n_args;
    char kinds[MAX_INTS + MAX_DOUBLES]; /* 'p' pointer, 'i' integer, 'd' double */
} Kernel;

static PyObject *tensor_type;
static data_ptr_function tensor_data_ptr;

#define A4(i) a[i], a[i + 1], a[i + 2], a[i + 3]
#define A16(i) A4(i), A4(i + 4), A4(i + 8), A4(i + 12)
#define T4 int64_t, int64_t, int64_t, int64_t
#define T16 T4, T4, T4, T4
#define T32 T16, T16
#define D8 d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]
#define TD8 double, double, double, double, double, double, double, double

static int64_t
call_kernel(void *f, int n_ints, int n_doubles, const int64_t *a, const double *d)
{
    if (n_doubles) {
        if (n_ints <= 8)
            return ((int64_t (*)(T4, T4, TD8))f)(A4(0), A4(4), D8);
        else if (n_ints <= 32)
            return ((int64_t (*)(T32, TD8))f)(A16(0), A16(16), D8);
        else
            return ((int64_t (*)(T32, T32, T32, TD8))f)(
                A16(0), A16(16), A16(32), A16(48), A16(64), A16(80), D8);
    }
    if (n_ints <= 4)
        return ((int64_t (*)(T4))f)(A4(0));
    else if (n_ints <= 8)
        return ((int64_t (*)(T4, T4))f)(A4(0), A4(4));
    else if (n_ints <= 16)
        return ((int64_t (*)(T16))f)(A16(0));
    else if (n_ints <= 32)
        return ((int64_t (*)(T32))f)(A16(0), A16(16));
    else
        return ((int64_t (*)(T32, T32, T32))f)(A16(0), A16(16), A16(32), A16(48), A16(64), A16(80));
}

static int
is_tensor(PyObject *object)
{
    return PyObject_TypeCheck(object, (PyTypeObject *)tensor_type);
}

static PyObject *
kernel_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Kernel *self = (Kernel *)object;
    int64_t ints[MAX_INTS];
    double doubles[MAX_DOUBLES];
    int n_ints = 0, n_doubles = 0;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);

    if (n != self->n_args || kwnames != NULL) {
        PyErr_Format(PyExc_TypeError, "kernel %U takes %zd positional arguments, got %zd",
                     self->name, self->n_args, n);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *arg = args[i];
        switch (self->kinds[i]) {
        case 'p':
            if (!is_tensor(arg)) {
                PyErr_Format(PyExc_TypeError, "kernel %U: argument %zd must be a tensor, not %s",
                             self->name, i, Py_TYPE(arg)->tp_name);
                return NULL;
            }
            ints[n_ints++] = (int64_t)(intptr_t)tensor_data_ptr(arg);
            break;
        case 'i': {
            long long value = PyLong_AsLongLong(arg);
            if (value == -1 && PyErr_Occurred())
                return NULL;
            ints[n_ints++] = value;
            break;
        }
        default: {
            double value = PyFloat_AsDouble(arg);
            if (value == -1.0 && PyErr_Occurred())
                return NULL;
            doubles[n_doubles++] = value;
        }
        }
    }
    int64_t fault;
    if (self->release_gil) {
        Py_BEGIN_ALLOW_THREADS
        fault = call_kernel(self->function, n_ints, n_doubles, ints, doubles);
        Py_END_ALLOW_THREADS
    } else {
        fault = call_kernel(self->function, n_ints, n_doubles, ints, doubles);
    }
    if (self->on_fault != NULL && fault)
        return PyObject_CallFunction(self->on_fault, "L", (long long)fault);
    Py_RETURN_NONE;
}

static int
set_kind(Kernel *self, Py_ssize_t i, const char *kind)
{
    if (strcmp(kind, "p") == 0 || strcmp(kind, "i64") == 0) {
        self->kinds[i] = kind[0];
        return ++self->n_ints <= MAX_INTS;
    }
    if (strcmp(kind, "f64") == 0) {
        self->kinds[i] = 'd';
        return ++self->n_doubles <= MAX_DOUBLES;
    }
    return 0;
}

static PyObject *
kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "address", "signature", "release_gil", "on_fault", NULL};
    PyObject *name, *signature, *on_fault = Py_None;
    unsigned long long address;
    int release_gil = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UKO!|pO", names, &name, &address,
                                     &PyTuple_Type, &signature, &release_gil, &on_fault))
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(signature);
    Kernel *self = (Kernel *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = kernel_vectorcall;
    self->function = (void *)(uintptr_t)address;
    self->name = Py_NewRef(name);
    self->release_gil = release_gil;
    self->on_fault = on_fault == Py_None ? NULL : Py_NewRef(on_fault);
    self->n_args = n;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GET_ITEM(signature, i);
        const char *kind = i < MAX_INTS + MAX_DOUBLES ? PyUnicode_AsUTF8(item) : NULL;
        if (kind == NULL || !set_kind(self, i, kind)) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError,
                             "kernel %U: cannot take argument %zd (%R): a kernel has at most %d "
                             "'p' and 'i64' and %d 'f64' arguments",
                             name, i, item, MAX_INTS, MAX_DOUBLES);
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static void
kernel_dealloc(Kernel *self)
{
    Py_XDECREF(self->name);
    Py_XDECREF(self->on_fault);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
kernel_repr(Kernel *self)
{
    return PyUnicode_FromFormat("<kernel %U, %zd arguments>", self->name, self->n_args);
}

static PyMemberDef kernel_members[] = {
    {"__name__", T_OBJECT, offsetof(Kernel, name), READONLY, "the kernel's name in its C file"},
    {NULL},
};

static PyTypeObject KernelType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tc_launch.Kernel",
    .tp_doc = "Kernel(name, address, signature, release_gil=False, on_fault=None)",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Kernel, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = kernel_new,
    .tp_dealloc = (destructor)kernel_dealloc,
    .tp_repr = (reprfunc)kernel_repr,
    .tp_members = kernel_members,
};

/* An offer: a frame callback as torch's hook gets it, and the owner of the code it compiles.
 *
 * At each call of compiled code the hook asks the callback for an attribute that names its owner,
 * until there is none. Python objects make a string of the name and format an error each time, at
 * 0.6 microseconds a call; this one looks at the name. Offers of equal owners are equal.
 */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;
    PyObject *owner;
} Offer;

static PyTypeObject OfferType;

static PyObject *
offer_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return PyObject_Vectorcall(((Offer *)object)->function, args, nargsf, kwnames);
}

static PyObject *
offer_getattr(PyObject *object, char *name)
{
    if (strcmp(name, "_torchdynamo_orig_backend") == 0) {
        PyErr_SetNone(PyExc_AttributeError);
        return NULL;
    }
    if (strcmp(name, "owner") == 0)
        return Py_NewRef(((Offer *)object)->owner);
    PyObject *text = PyUnicode_FromString(name);
    PyObject *found = text == NULL ? NULL : PyObject_GenericGetAttr(object, text);
    Py_XDECREF(text);
    return found;
}

static PyObject *
offer_compare(PyObject *a, PyObject *b, int op)
{
    if (!Py_IS_TYPE(a, &OfferType) || !Py_IS_TYPE(b, &OfferType))
        Py_RETURN_NOTIMPLEMENTED;
    return PyObject_RichCompare(((Offer *)a)->owner, ((Offer *)b)->owner, op);
}

static Py_hash_t
offer_hash(PyObject *object)
{
    return PyObject_Hash(((Offer *)object)->owner);
}

static PyObject *
offer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "owner", NULL};
    PyObject *function, *owner;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", names, &function, &owner))
        return NULL;
    Offer *self = (Offer *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = offer_vectorcall;
    self->function = Py_NewRef(function);
    self->owner = Py_NewRef(owner);
    return (PyObject *)self;
}

static int
offer_traverse(Offer *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    Py_VISIT(self->owner);
    return 0;
}

static int
offer_clear(Offer *self)
{
    Py_CLEAR(self->function);
    Py_CLEAR(self->owner);
    return 0;
}

static void
offer_dealloc(Offer *self)
{
    PyObject_GC_UnTrack(self);
    offer_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject OfferType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tc_launch.Offer",
    .tp_doc = "Offer(function, owner): a callback that is called as function",
    .tp_basicsize = sizeof(Offer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall_offset = offsetof(Offer, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = offer_new,
    .tp_dealloc = (destructor)offer_dealloc,
    .tp_traverse = (traverseproc)offer_traverse,
    .tp_clear = (inquiry)offer_clear,
    .tp_getattr = offer_getattr,
    .tp_richcompare = offer_compare,
    .tp_hash = offer_hash,
};

static PyObject *
advise_huge(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2 || !is_tensor(args[0])) {
        PyErr_SetString(PyExc_TypeError, "advise_huge(tensor, bytes)");
        return NULL;
    }
    long long bytes = PyLong_AsLongLong(args[1]);
    if (bytes == -1 && PyErr_Occurred())
        return NULL;
#ifdef MADV_HUGEPAGE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)tensor_data_ptr(args[0]);
    uintptr_t first = (start + page - 1) / page * page, last = (start + bytes) / page * page;
    if (last > first)
        madvise((void *)first, last - first, MADV_HUGEPAGE); /* advice: its failure is harmless */
#endif
    Py_RETURN_NONE;
}

static PyObject *
setup(PyObject *module, PyObject *args)
{
    PyObject *type;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "O!K", &PyType_Type, &type, &address))
        return NULL;
    Py_XSETREF(tensor_type, Py_NewRef(type));
    tensor_data_ptr = (data_ptr_function)(uintptr_t)address;
    Py_RETURN_NONE;
}

static PyMethodDef launch_methods[] = {
    {"setup", setup, METH_VARARGS, "setup(tensor_type, address of torch's data_ptr function)"},
    {"advise_huge", (PyCFunction)(void (*)(void))advise_huge, METH_FASTCALL,
     "advise_huge(tensor, bytes): ask the system for huge pages behind a tensor"},
    {NULL},
};

static struct PyModuleDef launch_module = {
    PyModuleDef_HEAD_INIT, "tc_launch", "Calls compiled kernels with tensors.", -1, launch_methods,
};

PyMODINIT_FUNC
PyInit_tc_launch(void)
{
    PyObject *m = NULL;
    if (PyType_Ready(&KernelType) < 0 || PyType_Ready(&OfferType) < 0 ||
        (m = PyModule_Create(&launch_module)) == NULL)
        return NULL;
    if (PyModule_AddObjectRef(m, "Kernel", (PyObject *)&KernelType) < 0 ||
        PyModule_AddObjectRef(m, "Offer", (PyObject *)&OfferType) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
