// Python's operators on tensors. What an operand cannot be gives NotImplemented, so that the other one is asked.

#include "athanor/ops/factory.h"
#include "python/src/methods.h"

namespace athanor::python {
namespace {

bool is_operand(PyObject* o) {
  return PyFloat_Check(o) || PyLong_Check(o) || (!is_tensor(o) && accepts(Kind::Scalar, o));
}

// The op on two tensors, a tensor and a number, or a number and a tensor.
template <class TT, class TS, class ST>
PyObject* binary(PyObject* a, PyObject* b, TT&& tensors, TS&& with_number, ST&& from_number) {
  try {
    if (is_tensor(a)) {
      const Tensor& x = unwrap(a);
      if (is_tensor(b)) {
        const Tensor& y = unwrap(b);
        return run(takes_long(x) || takes_long(y) || broadcast_to_much(x, y), [&] { return tensors(x, y); });
      }
      if (is_operand(b)) {
        const Scalar s = to_scalar(b);
        return run(takes_long(x), [&] { return with_number(x, s); });
      }
    } else if (is_operand(a)) {
      const Scalar s = to_scalar(a);
      const Tensor& y = unwrap(b);
      return run(takes_long(y), [&] { return from_number(s, y); });
    }
  } catch (...) {
    return raise_current();
  }
  Py_RETURN_NOTIMPLEMENTED;
}

template <class TT, class TS>
PyObject* in_place(PyObject* a, PyObject* b, TT&& tensors, TS&& with_number) {
  try {
    auto& x = const_cast<Tensor&>(unwrap(a));
    if (is_tensor(b)) {
      const Tensor& y = unwrap(b);
      run(takes_long(x) || takes_long(y), [&] { tensors(x, y); });
    } else if (is_operand(b)) {
      const Scalar s = to_scalar(b);
      run(takes_long(x), [&] { with_number(x, s); });
    } else {
      Py_RETURN_NOTIMPLEMENTED;
    }
  } catch (...) {
    return raise_current();
  }
  return Py_NewRef(a);
}

}  // namespace

#define ATHANOR_OPERATOR(name, op, reversed)                                                                   \
  PyObject* number_##name(PyObject* a, PyObject* b) {                                                          \
    return binary(                                                                                             \
        a, b, [](const Tensor& x, const Tensor& y) { return x.op(y); },                                        \
        [](const Tensor& x, const Scalar& s) { return x.op(s); },                                              \
        []([[maybe_unused]] const Scalar& s, const Tensor& y) { return reversed; });                           \
  }                                                                                                            \
  PyObject* number_inplace_##name(PyObject* a, PyObject* b) {                                                  \
    return in_place(                                                                                           \
        a, b, [](Tensor& x, const Tensor& y) { x.op##_(y); }, [](Tensor& x, const Scalar& s) { x.op##_(s); }); \
  }
ATHANOR_OPERATOR(add, add, y.add(s))
ATHANOR_OPERATOR(subtract, sub, athanor::rsub(y, s))
ATHANOR_OPERATOR(multiply, mul, y.mul(s))
ATHANOR_OPERATOR(divide, div, athanor::rdiv(y, s))
ATHANOR_OPERATOR(floor_divide, floor_divide, wrapped_number(s).floor_divide(y))
ATHANOR_OPERATOR(remainder, remainder, wrapped_number(s).remainder(y))
ATHANOR_OPERATOR(and, bitwise_and, y.bitwise_and(s))
ATHANOR_OPERATOR(or, bitwise_or, y.bitwise_or(s))
ATHANOR_OPERATOR(xor, bitwise_xor, y.bitwise_xor(s))
ATHANOR_OPERATOR(left_shift, bitwise_left_shift, wrapped_number(s).bitwise_left_shift(y))
ATHANOR_OPERATOR(right_shift, bitwise_right_shift, wrapped_number(s).bitwise_right_shift(y))

PyObject* number_matmul(PyObject* a, PyObject* b) {
  if (!is_tensor(a) || !is_tensor(b)) Py_RETURN_NOTIMPLEMENTED;
  try {
    const Tensor &x = unwrap(a), &y = unwrap(b);
    return run(takes_long(x) || takes_long(y) || take_long_together(x, y), [&] { return x.matmul(y); });
  } catch (...) {
    return raise_current();
  }
}

PyObject* number_power(PyObject* a, PyObject* b, PyObject*) {
  return binary(
      a, b, [](const Tensor& x, const Tensor& y) { return x.pow(y); },
      [](const Tensor& x, const Scalar& s) { return x.pow(s); },
      [](const Scalar& s, const Tensor& y) { return athanor::pow(s, y); });
}
PyObject* number_inplace_power(PyObject* a, PyObject* b, PyObject*) {
  return in_place(
      a, b, [](Tensor& x, const Tensor& y) { x.pow_(y); }, [](Tensor& x, const Scalar& s) { x.pow_(s); });
}

#define ATHANOR_UNARY(name, call)                          \
  PyObject* number_##name(PyObject* a) {                   \
    try {                                                  \
      const Tensor& x = unwrap(a);                         \
      return run(takes_long(x), [&] { return x.call(); }); \
    } catch (...) {                                        \
      return raise_current();                              \
    }                                                      \
  }
ATHANOR_UNARY(negative, neg)
ATHANOR_UNARY(positive, positive)
ATHANOR_UNARY(absolute, abs)
ATHANOR_UNARY(invert, bitwise_not)

namespace {

Scalar value_of(const Tensor& t) {
  ATHANOR_CHECK_VALUE(t.numel() == 1, "only one element tensors can be converted to Python scalars, got a tensor of ",
                      t.numel());
  const Unlocked unlocked(!t.device().is_host());
  return t.item();
}

}  // namespace

int number_bool(PyObject* a) {
  try {
    const Tensor& t = unwrap(a);
    ATHANOR_CHECK(t.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
    ATHANOR_CHECK(t.numel() == 1, "Boolean value of Tensor with more than one value is ambiguous");
    return value_of(t).toBool();
  } catch (...) {
    raise_current();
    return -1;
  }
}

PyObject* number_int(PyObject* a) {
  try {
    const Scalar s = value_of(unwrap(a));
    return s.isFloatingPoint() ? PyLong_FromDouble(s.toDouble()) : PyLong_FromLongLong(s.toLong());
  } catch (...) {
    return raise_current();
  }
}

PyObject* number_float(PyObject* a) {
  try {
    return PyFloat_FromDouble(value_of(unwrap(a)).toDouble());
  } catch (...) {
    return raise_current();
  }
}

PyObject* number_index(PyObject* a) {
  try {
    const Tensor& t = unwrap(a);
    ATHANOR_CHECK_TYPE(TypeError, t.numel() == 1 && !t.is_floating_point(),
                       "only integer tensors of a single element can be converted to an index");
    return PyLong_FromLongLong(value_of(t).toLong());
  } catch (...) {
    return raise_current();
  }
}

// Arrays leave == and != to us, who have the greater priority.
PyObject* compare_with_array(PyObject* a, PyObject* b, int how) {
  try {
    const Tensor array = tensor_from_buffer(b, "eq", false);
    const Tensor& t = unwrap(a);
    return wrap(how == Py_EQ ? t.eq(array) : t.ne(array));
  } catch (const TypeError&) {
    Py_RETURN_NOTIMPLEMENTED;  // an array of text
  } catch (...) {
    return raise_current();
  }
}

PyObject* tensor_compare(PyObject* a, PyObject* b, int how) {
  if ((how == Py_EQ || how == Py_NE) && is_tensor(a) && !is_tensor(b) && !accepts(Kind::Scalar, b) && has_buffer(b) &&
      PyObject_HasAttrString(b, "__array_interface__"))
    return compare_with_array(a, b, how);
  const auto compare = [&](auto&& call) {
    return binary(a, b, call, call, [](const Scalar&, const Tensor& y) { return y; });
  };
  switch (how) {
    case Py_EQ:
      return compare([](const Tensor& x, const auto& y) { return x.eq(y); });
    case Py_NE:
      return compare([](const Tensor& x, const auto& y) { return x.ne(y); });
    case Py_LT:
      return compare([](const Tensor& x, const auto& y) { return x.lt(y); });
    case Py_LE:
      return compare([](const Tensor& x, const auto& y) { return x.le(y); });
    case Py_GT:
      return compare([](const Tensor& x, const auto& y) { return x.gt(y); });
    default:
      return compare([](const Tensor& x, const auto& y) { return x.ge(y); });
  }
}

Tensor wrapped_number(const Scalar& s) {
  Tensor t = athanor::scalar_tensor(s, s.type());
  t.impl()->wrapped_number = true;
  return t;
}

}  // namespace athanor::python
