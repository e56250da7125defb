#include "athanor/tensor/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace athanor {
namespace {

/// Calls fn with the element at `offset` elements as double or, from integers, int64.
template <class F>
decltype(auto) with_element(const View& v, std::int64_t offset, F&& fn) {
  return dispatch_all(v.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const char* p = v.ptr<const char>() + offset * static_cast<std::int64_t>(sizeof(T));
    if constexpr (std::is_same_v<T, bool>) {
      return fn(std::int64_t{*p != 0});
    } else {
      T value;
      std::memcpy(&value, p, sizeof value);
      if constexpr (is_floating_v<T>)
        return fn(static_cast<double>(value));
      else
        return fn(static_cast<std::int64_t>(value));
    }
  });
}

double real_at(const View& v, std::int64_t offset) {
  return with_element(v, offset, [](auto x) { return static_cast<double>(x); });
}

std::string decimal(double value, std::chars_format format, int precision) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text(static_cast<std::size_t>(precision) + 330, '\0');
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, format, precision).ptr;
  text.resize(static_cast<std::size_t>(end - text.data()));
  return text;
}

std::string padded(std::string text, std::int64_t width) {
  const auto size = static_cast<std::int64_t>(text.size());
  return size < width ? std::string(static_cast<std::size_t>(width - size), ' ') + text : text;
}

std::string blanks(std::int64_t n) { return std::string(static_cast<std::size_t>(std::max<std::int64_t>(n, 0)), ' '); }

// ---- the Python form
// -------------------------------------------------------------------------------------------------

/// One pass of the printer over what it will show: first to choose a number format, then to write.
class PythonForm {
 public:
  PythonForm(const View& v, const PrintOptions& o)
      : v_(v), o_(o), summarize_(v.numel > o.threshold), precision_(std::clamp(o.precision, 0, 1000)) {}

  /// The values in brackets; `indent` columns are taken on the first line.
  std::string write(std::int64_t indent) {
    if (v_.numel == 0) return "[]";
    choose_format();
    std::string out;
    write_dim(out, 0, 0, indent);
    return out;
  }

 private:
  bool cut(int dim) const { return summarize_ && v_.sizes[dim] > 2 * o_.edgeitems; }

  /// Calls fn(offset) for the entries of `dim` that are shown, and gap() where others are left out.
  template <class F, class G>
  void entries(int dim, std::int64_t offset, F&& fn, G&& gap) const {
    const std::int64_t size = v_.sizes[dim], stride = v_.strides[dim];
    const bool short_form = cut(dim);
    const std::int64_t head = short_form ? o_.edgeitems : size;
    for (std::int64_t i = 0; i < head; ++i) fn(offset + i * stride);
    if (!short_form) return;
    gap();
    for (std::int64_t i = size - o_.edgeitems; i < size; ++i) fn(offset + i * stride);
  }

  template <class F>
  void shown_elements(int dim, std::int64_t offset, F&& fn) const {
    if (dim == v_.ndim) return fn(offset);
    entries(
        dim, offset, [&](std::int64_t at) { shown_elements(dim + 1, at, fn); }, [] {});
  }

  void choose_format() {
    if (!is_floating_point(v_.dtype)) {
      shown_elements(0, 0, [&](std::int64_t at) { widen(element(at)); });
      return;
    }
    double low = std::numeric_limits<double>::infinity(), high = 0;
    bool any = false;
    const auto each_number = [&](auto&& fn) {
      shown_elements(0, 0, [&](std::int64_t at) {
        const double x = real_at(v_, at);
        if (std::isfinite(x) && x != 0) fn(x);
      });
    };
    each_number([&](double x) {
      any = true;
      low = std::min(low, std::fabs(x));
      high = std::max(high, std::fabs(x));
      whole_ = whole_ && x == std::ceil(x);
    });
    if (!any) return;
    scientific_ = o_.sci_mode.value_or(high / low > 1000.0 || high > 1.0e8 || low < 1.0e-4);
    each_number([&](double x) { widen(number(x)); });
  }
  void widen(const std::string& text) { width_ = std::max(width_, static_cast<std::int64_t>(text.size())); }

  std::string number(double x) const {
    if (scientific_) return decimal(x, std::chars_format::scientific, precision_);
    if (!whole_) return decimal(x, std::chars_format::fixed, precision_);
    std::string text = decimal(x, std::chars_format::fixed, 0);
    if (std::isfinite(x)) text += '.';
    return text;
  }

  std::string element(std::int64_t at) const {
    return with_element(v_, at, [&](auto x) -> std::string {
      if constexpr (std::is_same_v<decltype(x), double>)
        return number(x);
      else if (v_.dtype == DType::Bool)
        return x != 0 ? "True" : "False";
      else
        return std::to_string(x);
    });
  }

  void write_dim(std::string& out, int dim, std::int64_t offset, std::int64_t indent) const {
    if (dim == v_.ndim) {
      out += padded(element(offset), width_);
      return;
    }
    if (dim == v_.ndim - 1) return write_vector(out, offset, indent);
    const std::string separator =
        "," + std::string(static_cast<std::size_t>(v_.ndim - dim - 1), '\n') + blanks(indent + 1);
    bool first = true;
    const auto separate = [&] {
      if (!first) out += separator;
      first = false;
    };
    out += '[';
    entries(
        dim, offset,
        [&](std::int64_t at) {
          separate();
          write_dim(out, dim + 1, at, indent + 1);
        },
        [&] {
          separate();
          out += "...";
        });
    out += ']';
  }

  void write_vector(std::string& out, std::int64_t offset, std::int64_t indent) const {
    const std::int64_t room = o_.linewidth - indent;
    const std::int64_t per_line = std::max<std::int64_t>(1, room > 0 ? room / (width_ + 2) : 0);
    std::int64_t count = 0;
    const auto separate = [&] {
      if (count > 0) out += count % per_line == 0 ? ",\n" + blanks(indent + 1) : ", ";
      ++count;
    };
    out += '[';
    if (summarize_ && o_.edgeitems == 0) {
      out += "...";
    } else {
      entries(
          v_.ndim - 1, offset,
          [&](std::int64_t at) {
            separate();
            out += padded(element(at), width_);
          },
          [&] {
            separate();
            out += " ...";
          });
    }
    out += ']';
  }

  const View& v_;
  const PrintOptions& o_;
  bool summarize_;
  int precision_;
  bool whole_ = true;  // floats without a fraction
  bool scientific_ = false;
  std::int64_t width_ = 1;
};

std::string python_tuple(IntArrayRef sizes) {
  std::string out = "(";
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (d > 0) out += ", ";
    out += std::to_string(sizes[d]);
  }
  return out + (sizes.size() == 1 ? ",)" : ")");
}

std::vector<std::string> python_suffixes(const View& v, const PrintOptions& o, const PrintSuffixes& s) {
  std::vector<std::string> fields;
  if (!s.device.empty()) fields.push_back(detail::str("device='", s.device, "'"));
  const bool is_default = v.dtype == get_default_dtype();
  const bool implied = is_default || (v.numel > 0 && (v.dtype == DType::Long || v.dtype == DType::Bool));
  if (v.numel == 0 ? v.ndim != 1 : o.edgeitems == 0) fields.push_back("size=" + python_tuple(v.shape()));
  if (!implied) fields.push_back(detail::str("dtype=", s.package, ".", dtype_name(v.dtype)));
  if (!s.grad_fn.empty())
    fields.push_back(detail::str("grad_fn=<", s.grad_fn, ">"));
  else if (s.requires_grad)
    fields.emplace_back("requires_grad=True");
  return fields;
}

// ---- the C++ form
// ------------------------------------------------------------------------------------------------------

/// As an ostream writes a double by default: %g with six digits.
std::string general(double x) { return decimal(x, std::chars_format::general, 6); }

/// The shortest text that reads back as x; scientific from 1e16 and below 1e-4.
std::string shortest(double x) {
  if (!std::isfinite(x)) return decimal(x, std::chars_format::fixed, 0);
  char text[400];
  const double size = std::fabs(x);
  const bool plain = x == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  return std::string(text, std::to_chars(text, text + sizeof text, x, format).ptr);
}

class CppForm {
 public:
  CppForm(const View& v, std::int64_t linewidth) : v_(v), linewidth_(linewidth) {}

  std::string write() {
    if (v_.ndim == 0) return scalar() + "\n";
    if (v_.numel == 0) return "";
    if (v_.ndim == 1) return vector();
    std::string out;
    if (v_.ndim == 2)
      write_matrix(out, 0, 0);
    else
      write_slices(out);
    return out;
  }

 private:
  enum class Style { General, Fixed, Scientific };

  std::string scalar() const { return shortest(real_at(v_, 0)); }

  template <class F>
  void each(int dim, std::int64_t offset, F&& fn) const {
    if (dim == v_.ndim) return fn(real_at(v_, offset));
    for (std::int64_t i = 0; i < v_.sizes[dim]; ++i) each(dim + 1, offset + i * v_.strides[dim], fn);
  }

  static double exponent(double x) { return x != 0 ? std::floor(std::log10(x)) + 1 : 1; }

  /// Chooses style, width and common factor for the elements below `offset` of dims from `dim` on.
  void choose_format(int dim, std::int64_t offset) {
    double low = std::numeric_limits<double>::infinity(), high = -1;
    bool whole = true;
    each(dim, offset, [&](double x) {
      if (!std::isfinite(x)) return;
      whole = whole && x == std::ceil(x);
      low = std::min(low, std::fabs(x));
      high = std::max(high, std::fabs(x));
    });
    const double least = high < 0 ? 1 : exponent(low), most = high < 0 ? 1 : exponent(high);
    scale_ = 1;
    width_ = 11;
    style_ = Style::Scientific;
    if (whole) {
      if (most > 9) return;
      width_ = static_cast<std::int64_t>(most) + 1;
      style_ = Style::General;
    } else if (most - least > 4) {
      if (std::fabs(most) > 99 || std::fabs(least) > 99) width_ = 12;
    } else {
      style_ = Style::Fixed;
      width_ = most >= 1 && most <= 5 ? static_cast<std::int64_t>(most) + 6 : 7;
      if (most > 5 || most < 0) scale_ = std::pow(10.0, most - 1);
    }
  }

  std::string cell(std::int64_t offset) const {
    const double x = real_at(v_, offset) / scale_;
    if (std::isnan(x)) return padded(std::signbit(x) ? "-nan" : "nan", width_);
    return padded(style_ == Style::General ? general(x)
                  : style_ == Style::Fixed ? decimal(x, std::chars_format::fixed, 4)
                                           : decimal(x, std::chars_format::scientific, 4),
                  width_);
  }

  std::string factor() const { return shortest(scale_) + " *\n"; }

  std::string vector() {
    choose_format(0, 0);
    std::string out = scale_ != 1 ? factor() : "";
    for (std::int64_t i = 0; i < v_.sizes[0]; ++i) out += cell(i * v_.strides[0]) + "\n";
    return out;
  }

  void write_matrix(std::string& out, std::int64_t offset, std::int64_t indent) {
    const int row = v_.ndim - 2, column = v_.ndim - 1;
    choose_format(row, offset);
    const std::int64_t columns = v_.sizes[column];
    const std::int64_t per_block = std::max<std::int64_t>(1, (linewidth_ - indent) / (width_ + 1));
    for (std::int64_t first = 0; first < columns; first += per_block) {
      const std::int64_t last = std::min(columns, first + per_block) - 1;
      if (per_block < columns) {
        if (first != 0) out += '\n';
        out += detail::str("Columns ", first + 1, " to ", last + 1) + blanks(indent);
      }
      if (scale_ != 1) out += factor() + blanks(indent);
      for (std::int64_t i = 0; i < v_.sizes[row]; ++i) {
        if (i > 0) out += blanks(indent + (scale_ != 1 ? 1 : 0));
        for (std::int64_t j = first; j <= last; ++j) {
          out += cell(offset + i * v_.strides[row] + j * v_.strides[column]);
          out += j == last ? '\n' : ' ';
        }
      }
    }
  }

  void write_slices(std::string& out) {
    DimVector at(static_cast<std::size_t>(v_.ndim - 2), 0);
    for (bool first = true;; first = false) {
      if (!first) out += '\n';
      out += '(';
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < at.size(); ++d) {
        out += std::to_string(at[d] + 1) + ",";
        offset += at[d] * v_.strides[d];
      }
      out += ".,.) = \n";
      write_matrix(out, offset, 1);
      std::size_t d = 0;  // the first dim runs fastest
      while (d < at.size() && ++at[d] == v_.sizes[d]) at[d++] = 0;
      if (d == at.size()) return;
    }
  }

  const View& v_;
  std::int64_t linewidth_;
  Style style_ = Style::General;
  std::int64_t width_ = 0;
  double scale_ = 1;
};

}  // namespace

std::string format_tensor(const View& view, const PrintOptions& options, const PrintSuffixes& suffixes) {
  constexpr std::string_view kPrefix = "tensor(";
  const auto indent = static_cast<std::int64_t>(kPrefix.size());
  std::string out(kPrefix);
  out += PythonForm(view, options).write(indent);
  const std::size_t line_end = out.rfind('\n');
  const auto begin = line_end == std::string::npos ? std::int64_t{-1} : static_cast<std::int64_t>(line_end);
  std::int64_t column = static_cast<std::int64_t>(out.size()) - begin + 1;
  for (const std::string& field : python_suffixes(view, options, suffixes)) {
    const auto size = static_cast<std::int64_t>(field.size());
    const bool wraps = column + size + 2 > options.linewidth;
    out += wraps ? ",\n" + blanks(indent) : ", ";
    out += field;
    column = wraps ? indent + size : column + size + 2;
  }
  return out + ")";
}

std::string format_tensor_cpp(const View& view, std::string_view backend, std::int64_t linewidth) {
  if (!view.defined()) return "[ Tensor (undefined) ]";
  std::string out = CppForm(view, linewidth).write();
  out += detail::str("[ ", backend, dtype_libtorch_name(view.dtype), "Type{");
  for (int d = 0; d < view.ndim; ++d) out += (d > 0 ? "," : "") + std::to_string(view.sizes[d]);
  return out + "} ]";
}

}  // namespace athanor
