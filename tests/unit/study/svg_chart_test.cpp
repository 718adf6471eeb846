#include "study/svg_chart.h"

#include <gtest/gtest.h>

#include <limits>

namespace quire {
namespace {

size_t count_of(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

// Every element is closed in its order, every attribute is quoted, and no bare & or < stands in text. Enough
// of XML for what the writer can get wrong.
class XmlCheck {
 public:
  explicit XmlCheck(const std::string& text) : text_(text) {}

  ::testing::AssertionResult well_formed() {
    while (at_ < text_.size() && why_.empty()) {
      if (text_[at_] == '<') {
        tag();
      } else if (text_[at_] == '&') {
        entity();
      } else {
        if (open_.empty() && text_[at_] != '\n') why_ = "text outside of the root";
        ++at_;
      }
    }
    if (why_.empty() && !open_.empty()) why_ = open_.back() + " is not closed";
    if (why_.empty() && n_roots_ != 1) why_ = "not one root";
    if (why_.empty()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << why_ << " before byte " << at_;
  }

 private:
  void entity() {
    for (const std::string known : {"&amp;", "&lt;", "&gt;", "&quot;"}) {
      if (text_.compare(at_, known.size(), known) != 0) continue;
      at_ += known.size();
      return;
    }
    why_ = "a bare &";
  }

  void tag() {
    const size_t end = text_.find('>', at_);
    if (end == std::string::npos) {
      why_ = "a tag without an end";
      return;
    }
    const std::string tag = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (tag.find('<') != std::string::npos) why_ = "a < in a tag";
    if (count_of(tag, "\"") % 2 != 0 || count_of(tag, "=\"") * 2 != count_of(tag, "\""))
      why_ = "quotes of " + tag;
    if (tag.starts_with('/')) {
      if (open_.empty() || open_.back() != tag.substr(1)) {
        why_ = "closes " + tag;
        return;
      }
      open_.pop_back();
    } else {
      if (open_.empty()) ++n_roots_;
      if (!tag.ends_with('/')) open_.push_back(tag.substr(0, tag.find(' ')));
    }
  }

  const std::string& text_;
  size_t at_ = 0;
  size_t n_roots_ = 0;
  std::vector<std::string> open_;
  std::string why_;
};

TEST(XmlEscaped, MarkupControlsAndBrokenCharacters) {
  EXPECT_EQ(xml_escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
  EXPECT_EQ(xml_escaped("Größe"), "Größe");
  EXPECT_EQ(xml_escaped(std::string("x\0y\x1bz", 5)), "x\xef\xbf\xbdy\xef\xbf\xbdz");
  EXPECT_EQ(xml_escaped("\xff\xc3"), "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(AxisTicks, AreRoundAndReachAround) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(0, 4096, 8), (std::vector<double>{0, 1000, 2000, 3000, 4000, 5000}));
  EXPECT_EQ(axis_ticks(0, 0, 4).front(), 0);
  for (const double high : {1e-7, 0.037, 1.0, 99.0, 12345.0, 3e12}) {
    const std::vector<double> ticks = axis_ticks(-high / 3, high, 6);
    EXPECT_LE(ticks.front(), -high / 3);
    EXPECT_GE(ticks.back(), high);
    EXPECT_GE(ticks.size(), 3u) << high;
    EXPECT_LE(ticks.size(), 10u) << high;
  }
}

TEST(SvgOf, IsWellFormedWhateverTheNames) {
  const Chart chart{
      "a < b & \"c\"", "x>", "y\x01", {{"k=q4,v=q8</text>", {{0, 1}, {1, 2}}}, {"\xff", {{1, 5}}}}};
  const std::string svg = svg_of(chart);
  EXPECT_TRUE(XmlCheck(svg).well_formed()) << svg;
  EXPECT_NE(svg.find("k=q4,v=q8&lt;/text&gt;"), std::string::npos);
  EXPECT_EQ(count_of(svg, "<polyline"), 2u);
  EXPECT_EQ(count_of(svg, "<circle"), 3u);
}

TEST(SvgOf, NothingToDraw) {
  for (const Chart& chart : {Chart{}, Chart{"t", "x", "y", {{"none", {}}}}}) {
    const std::string svg = svg_of(chart);
    EXPECT_TRUE(XmlCheck(svg).well_formed()) << svg;
  }
}

TEST(SvgOf, LeavesOutWhatIsNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string svg = svg_of({"t", "x", "y", {{"s", {{0, 1}, {1, nan}, {2, infinity}, {3, 2}}}}});
  EXPECT_TRUE(XmlCheck(svg).well_formed());
  EXPECT_EQ(count_of(svg, "<circle"), 2u);
  EXPECT_EQ(count_of(svg, "nan") + count_of(svg, "inf\""), 0u);
}

TEST(SvgOf, ManySeriesAndPoints) {
  Chart chart{"t", "x", "y", {}};
  for (int s = 0; s < 30; ++s) {
    ChartSeries& series = chart.series.emplace_back();
    series.name = "series " + std::to_string(s);
    for (int i = 0; i < 100; ++i) series.points.push_back({double(i), double(s * i)});
  }
  const std::string svg = svg_of(chart);
  EXPECT_TRUE(XmlCheck(svg).well_formed());
  EXPECT_EQ(count_of(svg, "<polyline"), 30u);
  EXPECT_EQ(count_of(svg, "<circle"), 0u);
  EXPECT_GT(count_of(svg, "stroke-dasharray"), 0u);
}

}  // namespace
}  // namespace quire
