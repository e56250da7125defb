// Other forms of calls, looked for when no signature fits: deprecated ones, torch.add(x, 2, y) for
// torch.add(x, y, alpha=2), and x.copy_(1).

#include <cstring>
#include <string>

#include "python/src/arguments.h"
#include "python/src/methods.h"

namespace athanor::python {
namespace {

/// A form by the kinds of its positional arguments: t for a tensor; a, b, v for a number that now is alpha, beta,
/// value.
struct OldForm {
  const char* names;  ///< of ops, between spaces
  const char* kinds;
};
constexpr const char* kProducts = " addmm addmv addr addbmm baddbmm ";
constexpr OldForm kFunctions[] = {
    {" add sub ", "tat"}, {" addcmul addcdiv ", "tvtt"}, {kProducts, "btatt"}, {kProducts, "bttt"}};
constexpr OldForm kMethods[] = {
    {" add sub ", "tat"}, {" addcmul addcdiv ", "tvtt"}, {kProducts, "tbatt"}, {kProducts, "tbtt"}};

bool fits(const char* kinds, PyObject* const* args, std::size_t positional) {
  if (std::strlen(kinds) != positional) return false;
  for (std::size_t i = 0; i < positional; ++i)
    if (is_tensor(args[i]) != (kinds[i] == 't') || (kinds[i] != 't' && !accepts(Kind::Scalar, args[i]))) return false;
  return true;
}

bool warn(const char* op, const char* kinds) {
  std::string old, now;
  for (const char* k = kinds; *k; ++k) {
    if (k != kinds) old += ", ";
    old += *k == 't' ? "Tensor" : *k == 'a' ? "Number alpha" : *k == 'b' ? "Number beta" : "Number value";
    if (*k != 't') now += *k == 'a' ? ", alpha=..." : *k == 'b' ? ", beta=..." : ", value=...";
  }
  return PyErr_WarnFormat(PyExc_UserWarning, 1,
                          "This overload of %s is deprecated:\n\t%s(%s)\nConsider passing numbers by name instead:\n"
                          "\t%s(tensors%s)",
                          op, op, old.c_str(), op, now.c_str()) == 0;
}

}  // namespace

PyObject* call_old_form(PyObject* callable, const char* name, bool method, PyObject* const* args,
                        std::size_t positional, PyObject* names) {
  std::string op = name;
  if (op == "copy_" && positional == 2 && !names && is_tensor(args[0]) && !is_tensor(args[1]) &&
      accepts(Kind::Scalar, args[1])) {
    PyErr_Clear();
    PyObject* number = wrap(wrapped_number(to_scalar(args[1])));
    PyObject* result = number ? PyObject_CallFunctionObjArgs(callable, args[0], number, nullptr) : nullptr;
    Py_XDECREF(number);
    return result;
  }
  if (op.back() == '_') op.pop_back();
  for (const OldForm& form : method ? std::span<const OldForm>(kMethods) : std::span<const OldForm>(kFunctions)) {
    if (!std::strstr(form.names, (" " + op + " ").c_str()) || !fits(form.kinds, args, positional)) continue;
    PyErr_Clear();
    if (!warn(name, form.kinds)) return nullptr;
    PyObject* tensors = PyList_New(0);
    PyObject* keywords = PyDict_New();
    for (std::size_t i = 0; tensors && keywords && i < positional; ++i) {
      const char kind = form.kinds[i];
      if (kind == 't')
        PyList_Append(tensors, args[i]);
      else
        PyDict_SetItemString(keywords, kind == 'a' ? "alpha" : kind == 'b' ? "beta" : "value", args[i]);
    }
    for (Py_ssize_t k = 0; names && keywords && k < PyTuple_GET_SIZE(names); ++k)
      PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, k), args[positional + static_cast<std::size_t>(k)]);
    PyObject* arguments = tensors ? PyList_AsTuple(tensors) : nullptr;
    PyObject* result = arguments && keywords ? PyObject_Call(callable, arguments, keywords) : nullptr;
    Py_XDECREF(arguments);
    Py_XDECREF(tensors);
    Py_XDECREF(keywords);
    return result;
  }
  return nullptr;
}

}  // namespace athanor::python
