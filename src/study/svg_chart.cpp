#include "study/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "text/utf8_stream.h"

namespace quire {
namespace {

// In pixels. The legend stands under the plot, a line for each series, as recipes have long names.
constexpr double kWidth = 760;
constexpr double kPlotLeft = 80;
constexpr double kPlotRight = kWidth - 24;
constexpr double kPlotTop = 48;
constexpr double kPlotBottom = 368;
constexpr double kLegendTop = kPlotBottom + 64;
constexpr double kLegendLine = 20;
// Fewer points are marked, as then each is a measurement of its own.
constexpr size_t kMostMarks = 12;

// Told apart also by those who see few colours (Okabe and Ito 2008); 7 colours and 3 patterns give 21 series
// of their own. Of lines that lie on each other all are seen, as the upper ones have gaps or let the lower
// through.
constexpr std::array<const char*, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#56b4e9", "#e69f00", "#000000"};
constexpr std::array<const char*, 3> kDashes = {"", " stroke-dasharray=\"7 4\"", " stroke-dasharray=\"2 3\""};

std::string pixels(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string tick_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

bool is_finite(const ChartPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

std::string element_text(double x, double y, const char* more, std::string_view text) {
  return "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\"" + more + ">" + xml_escaped(text) +
         "</text>\n";
}

std::string element_line(double x1, double y1, double x2, double y2, const std::string& more) {
  return "<line x1=\"" + pixels(x1) + "\" y1=\"" + pixels(y1) + "\" x2=\"" + pixels(x2) + "\" y2=\"" +
         pixels(y2) + "\" " + more + "/>\n";
}

struct Axis {
  std::vector<double> ticks;
  double first_pixel;
  double last_pixel;

  double pixel(double value) const {
    const double share = (value - ticks.front()) / (ticks.back() - ticks.front());
    return first_pixel + share * (last_pixel - first_pixel);
  }
};

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    ChartPoint low;
    ChartPoint high;
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& point : series.points) {
        if (!is_finite(point)) continue;
        low = {std::min(low.x, point.x), std::min(low.y, point.y)};
        high = {std::max(high.x, point.x), std::max(high.y, point.y)};
      }
    }
    x_ = {axis_ticks(low.x, high.x, 8), kPlotLeft, kPlotRight};
    y_ = {axis_ticks(low.y, high.y, 6), kPlotBottom, kPlotTop};
  }

  std::string text() const {
    const double height = kLegendTop + kLegendLine * static_cast<double>(chart_.series.size()) + 8;
    std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + pixels(kWidth) + "\" height=\"" +
                      pixels(height) + "\" viewBox=\"0 0 " + pixels(kWidth) + " " + pixels(height) +
                      "\" font-family=\"sans-serif\" font-size=\"13\">\n<title>" + xml_escaped(chart_.title) +
                      "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
                      element_text(kPlotLeft, 28, " font-size=\"16\"", chart_.title) + axes();
    for (size_t i = 0; i < chart_.series.size(); ++i) svg += curve(i) + legend(i);
    return svg + "</svg>\n";
  }

 private:
  std::string axes() const {
    std::string svg;
    for (const double tick : x_.ticks) {
      const double x = x_.pixel(tick);
      svg += element_line(x, kPlotBottom, x, kPlotBottom + 5, "stroke=\"#444444\"") +
             element_text(x, kPlotBottom + 20, " text-anchor=\"middle\"", tick_text(tick));
    }
    for (const double tick : y_.ticks) {
      const double y = y_.pixel(tick);
      svg += element_line(kPlotLeft, y, kPlotRight, y, "stroke=\"#dddddd\"") +
             element_text(kPlotLeft - 8, y + 4, " text-anchor=\"end\"", tick_text(tick));
    }
    const std::string turned =
        " text-anchor=\"middle\" transform=\"rotate(-90 20 " + pixels((kPlotTop + kPlotBottom) / 2) + ")\"";
    return svg + element_line(kPlotLeft, kPlotBottom, kPlotRight, kPlotBottom, "stroke=\"#444444\"") +
           element_line(kPlotLeft, kPlotTop, kPlotLeft, kPlotBottom, "stroke=\"#444444\"") +
           element_text((kPlotLeft + kPlotRight) / 2, kPlotBottom + 42, " text-anchor=\"middle\"",
                        chart_.x_label) +
           element_text(20, (kPlotTop + kPlotBottom) / 2, turned.c_str(), chart_.y_label);
  }

  static std::string stroke(size_t i) {
    return std::string("stroke=\"") + kColours[i % kColours.size()] +
           "\" stroke-width=\"2\" stroke-opacity=\"0.75\"" + kDashes[i % kDashes.size()];
  }

  std::string curve(size_t i) const {
    const std::vector<ChartPoint>& points = chart_.series[i].points;
    std::string corners;
    std::string marks;
    for (const ChartPoint& point : points) {
      if (!is_finite(point)) continue;
      const std::string x = pixels(x_.pixel(point.x));
      const std::string y = pixels(y_.pixel(point.y));
      corners.append(corners.empty() ? "" : " ").append(x).append(",").append(y);
      marks += "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"3.5\" fill=\"" + kColours[i % kColours.size()] +
               "\"/>\n";
    }
    if (points.size() > kMostMarks) marks.clear();
    return "<polyline points=\"" + corners + "\" fill=\"none\" " + stroke(i) + "/>\n" + marks;
  }

  std::string legend(size_t i) const {
    const double y = kLegendTop + kLegendLine * static_cast<double>(i);
    return element_line(kPlotLeft, y, kPlotLeft + 28, y, stroke(i)) +
           element_text(kPlotLeft + 36, y + 4, "", chart_.series[i].name);
  }

  const Chart& chart_;
  Axis x_;
  Axis y_;
};

}  // namespace

std::string svg_of(const Chart& chart) { return Drawing(chart).text(); }

std::string xml_escaped(std::string_view text) {
  Utf8Stream characters;
  std::string valid = characters.push(text);  // first, which a sum would leave open
  valid += characters.flush();
  std::string out;
  for (const char c : valid) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') {
      out += "\xef\xbf\xbd";
    } else {
      out += c;
    }
  }
  return out;
}

std::vector<double> axis_ticks(double low, double high, int n_wanted) {
  if (!(high > low)) high = low + 1;
  const double rough = (high - low) / n_wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough * (1 - 1e-9)) step = factor * power;
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9);
  const double last = std::ceil(high / step - 1e-9);
  // Products instead of sums, so that 0 is 0.
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

}  // namespace quire
