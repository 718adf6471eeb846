#include "eval_table.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace quire::cli {
namespace {

constexpr size_t kNarrowest = 6;
constexpr size_t kGap = 2;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out.append(c == '"' ? 2 : 1, c);
  return out + "\"";
}

// What is not a number, null in JSON, is an empty cell.
std::string cell(const nlohmann::ordered_json& value) {
  if (value.is_string()) return quoted(value.get<std::string>());
  if (value.is_null()) return "";
  const std::string text = value.dump();
  return text == "null" ? "" : text;
}

}  // namespace

std::string text_table(const std::vector<std::string>& titles,
                       const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < titles.size(); ++i) {
    widths.push_back(std::max(kNarrowest, titles[i].size()));
    for (const auto& row : rows) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  const auto add = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      out += i == 0 ? row[i] + padding : std::string(kGap, ' ') + padding + row[i];
    }
    out += '\n';
  };
  add(titles);
  for (const auto& row : rows) add(row);
  return out;
}

std::string csv_table(const nlohmann::ordered_json& rows) {
  std::string out;
  for (const auto& row : rows) {
    std::string names;
    std::string values;
    for (const auto& [name, value] : row.items()) {
      const char* comma = names.empty() ? "" : ",";
      names += comma + name;
      values += comma + cell(value);
    }
    out += (out.empty() ? names + "\n" : "") + values + "\n";
  }
  return out;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes << std::flush;
  if (!file) throw Error(path + " cannot be written");
}

}  // namespace quire::cli
