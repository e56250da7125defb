#pragma once
/// Small charts as SVG files: bars and lines with error bars. For programs that show what they measured.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "athanor/base/error.h"

namespace examples {

/// A measured value, its standard deviation, and what it is of.
struct ChartValue {
  std::string label;
  double x = 0;  ///< place on the x axis, for lines
  double mean = 0, deviation = 0;
};

class SvgChart {
 public:
  SvgChart(std::string title, std::string x_label, std::string y_label)
      : title_(std::move(title)), x_label_(std::move(x_label)), y_label_(std::move(y_label)) {}

  /// A bar for each value.
  std::string bars(const std::vector<ChartValue>& values) {
    begin(values);
    const double slot = kWidth / static_cast<double>(std::max<std::size_t>(values.size(), 1));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double middle = kLeft + slot * (static_cast<double>(i) + 0.5), top = y_of(values[i].mean);
      out_ << "<rect x='" << middle - 0.3 * slot << "' y='" << top << "' width='" << 0.6 * slot << "' height='"
           << kTop + kHeight - top << "' fill='#4c78a8' fill-opacity='0.6'/>\n";
      error_bar(middle, values[i]);
      text(middle, kTop + kHeight + 20, values[i].label, "middle");
    }
    return end();
  }

  /// A line through the values, whose x lie on a logarithmic axis.
  std::string line(const std::vector<ChartValue>& values) {
    begin(values);
    double least = 1e300, most = -1e300;
    for (const ChartValue& v : values) {
      least = std::min(least, std::log2(v.x));
      most = std::max(most, std::log2(v.x));
    }
    const double span = std::max(most - least, 1e-9);
    std::ostringstream points;
    for (const ChartValue& v : values) {
      const double x = kLeft + kWidth * (0.05 + 0.9 * (std::log2(v.x) - least) / span);
      points << x << ',' << y_of(v.mean) << ' ';
      out_ << "<circle cx='" << x << "' cy='" << y_of(v.mean) << "' r='4' fill='#4c78a8'/>\n";
      error_bar(x, v);
      text(x, kTop + kHeight + 20, v.label, "middle");
    }
    out_ << "<polyline points='" << points.str() << "' fill='none' stroke='#4c78a8' stroke-width='2'/>\n";
    return end();
  }

 private:
  static constexpr double kLeft = 80, kTop = 50, kWidth = 520, kHeight = 330;

  void begin(const std::vector<ChartValue>& values) {
    out_.str("");
    highest_ = 0;
    for (const ChartValue& v : values) highest_ = std::max(highest_, v.mean + v.deviation);
    const double rough = std::max(highest_, 1e-12) / 5, unit = std::pow(10, std::floor(std::log10(rough)));
    const double tick = unit * (rough / unit <= 1 ? 1 : rough / unit <= 2 ? 2 : rough / unit <= 5 ? 5 : 10);
    highest_ = tick * std::ceil(std::max(highest_, 1e-12) / tick);
    out_ << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 640 460' width='640' height='460' "
            "font-family='sans-serif' font-size='13'>\n<rect width='640' height='460' fill='white'/>\n";
    text(kLeft + kWidth / 2, 25, title_, "middle");
    for (double v = 0; v <= highest_ * 1.0001; v += tick) {
      out_ << "<line x1='" << kLeft << "' x2='" << kLeft + kWidth << "' y1='" << y_of(v) << "' y2='" << y_of(v)
           << "' stroke='#dddddd'/>\n";
      std::ostringstream number;
      number << v;
      text(kLeft - 8, y_of(v) + 4, number.str(), "end");
    }
  }

  double y_of(double value) const { return kTop + kHeight * (1 - value / highest_); }

  void error_bar(double x, const ChartValue& v) {
    const double low = y_of(std::max(0.0, v.mean - v.deviation)), high = y_of(v.mean + v.deviation);
    out_ << "<path d='M" << x << ' ' << low << "V" << high << "M" << x - 7 << ' ' << low << "h14M" << x - 7 << ' '
         << high << "h14' stroke='#d62728' stroke-width='1.5' fill='none'/>\n";
  }

  void text(double x, double y, const std::string& words, const char* anchor) {
    out_ << "<text x='" << x << "' y='" << y << "' text-anchor='" << anchor << "'>";
    for (const char c : words) c == '<' ? out_ << "&lt;" : c == '&' ? out_ << "&amp;" : out_ << c;
    out_ << "</text>\n";
  }

  std::string end() {
    out_ << "<path d='M" << kLeft << ' ' << kTop << "v" << kHeight << "h" << kWidth
         << "' stroke='black' fill='none'/>\n";
    text(kLeft + kWidth / 2, 440, x_label_, "middle");
    out_ << "<text transform='translate(24," << kTop + kHeight / 2 << ") rotate(-90)' text-anchor='middle'>" << y_label_
         << "</text>\n</svg>\n";
    return out_.str();
  }

  std::string title_, x_label_, y_label_;
  double highest_ = 1;
  std::ostringstream out_;
};

/// Writes a whole file or throws Error naming it.
inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  ATHANOR_CHECK(file.good(), "cannot write ", path);
}

}  // namespace examples
