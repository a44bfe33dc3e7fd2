/* Relation: a condition on sizes, strides, offsets and numbers, checked without Python.
 *
 * The condition is a program for a stack of 64-bit integers. What the program cannot decide (a
 * number that does not fit, a tensor of another class, a division by zero) is asked of a Python
 * function of the same values, which is the definition of the condition.
 *
 * Tensors are read by torch's functions in C for ahead-of-time compiled code, whose names and
 * signatures are kept from version to version. They take the address of the C++ tensor, which lies
 * in the Python object.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>

#define RELATION_VALUES 64
#define RELATION_STACK 64

/* The order is that of `OPS` in core/relations.py. */
enum {
    R_CONSTANT, R_NUMBER, R_SIZE, R_STRIDE, R_OFFSET, /* followed by a value, or by places */
    R_HOLDS,                                          /* ends the program unless it is true */
    R_ADD, R_SUB, R_MUL, R_DIV, R_MOD, R_MIN, R_MAX,
    R_EQ, R_NE, R_LT, R_LE, R_GT, R_GE, R_AND, R_OR,
    R_NEG, R_NOT, R_OPS
};

typedef int32_t (*read_number)(void *tensor, int64_t *result);
typedef int32_t (*read_numbers)(void *tensor, int64_t **result);

static PyTypeObject *relation_tensor, *relation_parameter;
static Py_ssize_t relation_cdata; /* where the C++ tensor lies in its Python object */
static read_number relation_dim, relation_offset;
static read_numbers relation_sizes, relation_strides;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fallback;
    Py_ssize_t n_values, length;
    int64_t *program;
} Relation;

static void *
relation_handle(PyObject *value)
{
    if (Py_TYPE(value) != relation_tensor && Py_TYPE(value) != relation_parameter)
        return NULL;
    return (char *)value + relation_cdata;
}

/* An item of what `read` gives for a tensor; 0: there is none. */
static int
relation_item(PyObject *value, read_numbers read, int64_t item, int64_t *result)
{
    void *tensor = relation_handle(value);
    int64_t dim, *items;
    if (tensor == NULL || relation_dim(tensor, &dim) || item >= dim || read(tensor, &items))
        return 0;
    *result = items[item];
    return 1;
}

static int
relation_number(PyObject *value, int64_t *result)
{
    int overflow;
    if (!PyLong_CheckExact(value))
        return 0;
    *result = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
}

/* Python's division: the remainder has the sign of the divisor. */
static int
relation_divided(int64_t a, int64_t b, int64_t *quotient, int64_t *rest)
{
    if (b == 0 || (a == INT64_MIN && b == -1))
        return 0;
    *quotient = a / b;
    *rest = a % b;
    if (*rest != 0 && (*rest < 0) != (b < 0)) {
        *quotient -= 1;
        *rest += b;
    }
    return 1;
}

static int
relation_combined(int64_t op, int64_t a, int64_t b, int64_t *result)
{
    int64_t other;
    switch (op) {
    case R_ADD: return !__builtin_add_overflow(a, b, result);
    case R_SUB: return !__builtin_sub_overflow(a, b, result);
    case R_MUL: return !__builtin_mul_overflow(a, b, result);
    case R_DIV: return relation_divided(a, b, result, &other);
    case R_MOD: return relation_divided(a, b, &other, result);
    case R_MIN: *result = a < b ? a : b; return 1;
    case R_MAX: *result = a > b ? a : b; return 1;
    case R_EQ: *result = a == b; return 1;
    case R_NE: *result = a != b; return 1;
    case R_LT: *result = a < b; return 1;
    case R_LE: *result = a <= b; return 1;
    case R_GT: *result = a > b; return 1;
    case R_GE: *result = a >= b; return 1;
    case R_AND: *result = a && b; return 1;
    case R_OR: *result = a || b; return 1;
    default: return 0;
    }
}

/* 1: true, 0: false, -1: undecided */
static int
relation_decided(const Relation *self, PyObject *const *values)
{
    int64_t stack[RELATION_STACK];
    int64_t *top = stack; /* the first free place; the program was checked to stay within */
    const int64_t *at = self->program, *end = at + self->length;
    while (at < end) {
        int64_t op = *at++;
        int good = 1;
        switch (op) {
        case R_CONSTANT: *top++ = *at++; break;
        case R_NUMBER: good = relation_number(values[at[0]], top++); at++; break;
        case R_SIZE: good = relation_item(values[at[0]], relation_sizes, at[1], top++); at += 2; break;
        case R_STRIDE: good = relation_item(values[at[0]], relation_strides, at[1], top++); at += 2; break;
        case R_OFFSET: {
            void *tensor = relation_handle(values[*at++]);
            good = tensor != NULL && !relation_offset(tensor, top++);
            break;
        }
        case R_HOLDS:
            if (!*--top)
                return 0;
            break;
        case R_NEG: good = !__builtin_sub_overflow((int64_t)0, top[-1], &top[-1]); break;
        case R_NOT: top[-1] = !top[-1]; break;
        default:
            top--;
            good = relation_combined(op, top[-1], top[0], &top[-1]);
        }
        if (!good)
            return -1;
    }
    return 1;
}

static PyObject *
relation_vectorcall(PyObject *object, PyObject *const *values, size_t nargsf, PyObject *kwnames)
{
    Relation *self = (Relation *)object;
    if (PyVectorcall_NARGS(nargsf) != self->n_values || kwnames != NULL) {
        PyErr_Format(PyExc_TypeError, "the condition is one of %zd values", self->n_values);
        return NULL;
    }
    int decided = relation_decided(self, values);
    if (decided < 0)
        return PyObject_Vectorcall(self->fallback, values, self->n_values, NULL);
    return PyBool_FromLong(decided);
}

/* Whether a program reads only what there is, and its stack stays within its bounds. */
static int
relation_is_sound(const int64_t *program, Py_ssize_t length, Py_ssize_t n_values)
{
    Py_ssize_t at = 0, depth = 0;
    while (at < length) {
        int64_t op = program[at++];
        if (op < 0 || op >= R_OPS)
            return 0;
        int operands = op == R_SIZE || op == R_STRIDE ? 2 : op <= R_OFFSET ? 1 : 0;
        if (at + operands > length)
            return 0;
        if (op >= R_NUMBER && op <= R_OFFSET && (program[at] < 0 || program[at] >= n_values))
            return 0;
        if (operands == 2 && program[at + 1] < 0)
            return 0;
        at += operands;
        int needs = op <= R_OFFSET ? 0 : op == R_HOLDS || op >= R_NEG ? 1 : 2;
        if (depth < needs)
            return 0;
        depth += op <= R_OFFSET ? 1 : op >= R_NEG ? 0 : -1;
        if (depth > RELATION_STACK)
            return 0;
    }
    return depth == 0;
}

static PyObject *
relation_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t n_values;
    PyObject *program, *fallback;
    if (!PyArg_ParseTuple(args, "nO!O", &n_values, &PyTuple_Type, &program, &fallback))
        return NULL;
    if (relation_sizes == NULL || n_values < 0 || n_values > RELATION_VALUES) {
        PyErr_SetString(PyExc_ValueError, "not set up, or too many values");
        return NULL;
    }
    Relation *self = (Relation *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = relation_vectorcall;
    self->fallback = Py_NewRef(fallback);
    self->n_values = n_values;
    self->length = PyTuple_GET_SIZE(program);
    self->program = PyMem_Calloc(self->length + 1, sizeof(int64_t));
    if (self->program == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < self->length; i++)
        self->program[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(program, i));
    if (!PyErr_Occurred() && !relation_is_sound(self->program, self->length, n_values))
        PyErr_SetString(PyExc_ValueError, "the program is none");
    if (PyErr_Occurred())
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int
relation_traverse(Relation *self, visitproc visit, void *arg)
{
    Py_VISIT(self->fallback);
    return 0;
}

static int
relation_clear(Relation *self)
{
    Py_CLEAR(self->fallback);
    return 0;
}

static void
relation_dealloc(Relation *self)
{
    PyObject_GC_UnTrack(self);
    relation_clear(self);
    PyMem_Free(self->program);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject RelationType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tc_relation.Relation",
    .tp_doc = "Relation(number of values, program, function that decides where the program cannot)",
    .tp_basicsize = sizeof(Relation),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall_offset = offsetof(Relation, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = relation_new,
    .tp_dealloc = (destructor)relation_dealloc,
    .tp_traverse = (traverseproc)relation_traverse,
    .tp_clear = (inquiry)relation_clear,
};

static PyObject *
relation_setup(PyObject *module, PyObject *args)
{
    PyTypeObject *tensor, *parameter;
    unsigned long long dim, sizes, strides, offset;
    Py_ssize_t cdata;
    if (!PyArg_ParseTuple(args, "O!O!nKKKK", &PyType_Type, &tensor, &PyType_Type, &parameter, &cdata,
                          &dim, &sizes, &strides, &offset))
        return NULL;
    Py_XSETREF(relation_tensor, (PyTypeObject *)Py_NewRef(tensor));
    Py_XSETREF(relation_parameter, (PyTypeObject *)Py_NewRef(parameter));
    relation_cdata = cdata;
    relation_dim = (read_number)(uintptr_t)dim;
    relation_offset = (read_number)(uintptr_t)offset;
    relation_strides = (read_numbers)(uintptr_t)strides;
    relation_sizes = (read_numbers)(uintptr_t)sizes;
    Py_RETURN_NONE;
}

static PyMethodDef relation_methods[] = {
    {"setup", relation_setup, METH_VARARGS,
     "setup(Tensor, Parameter, offset of the C++ tensor, addresses of torch's functions)"},
    {NULL},
};

static struct PyModuleDef relation_module = {
    PyModuleDef_HEAD_INIT, "tc_relation", "Checks conditions on sizes.", -1, relation_methods,
};

PyMODINIT_FUNC
PyInit_tc_relation(void)
{
    PyObject *m = NULL;
    if (PyType_Ready(&RelationType) < 0 || (m = PyModule_Create(&relation_module)) == NULL)
        return NULL;
    if (PyModule_AddObjectRef(m, "Relation", (PyObject *)&RelationType) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
