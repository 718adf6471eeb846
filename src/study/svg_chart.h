// Line charts as SVG text, complete in themselves: no script, no style sheet, no font but the viewer's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  // drawn in this order; those that are not finite are left out
};

// Both axes begin at 0 or below.
struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartSeries> series;
};

std::string svg_of(const Chart& chart);

// Text as it may stand in XML, in an attribute too. Control characters and what is not UTF-8 become U+FFFD.
std::string xml_escaped(std::string_view text);

// Round numbers (1, 2 or 5 times a power of ten apart), about `n_wanted`, from the last one not above `low`
// to the first one not below `high`.
std::vector<double> axis_ticks(double low, double high, int n_wanted);

}  // namespace quire
