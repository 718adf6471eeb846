// Tables of what an evaluation measured: for people, and as CSV.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace quire::cli {

// A line for each row and one of the titles above: the first cell to the left, the others to the right.
std::string text_table(const std::vector<std::string>& titles,
                       const std::vector<std::vector<std::string>>& rows);

// Objects with the same names, one a line under a line of the names; texts in quotes, as commas of recipes
// need them. Empty for no rows.
std::string csv_table(const nlohmann::ordered_json& rows);

// Throws Error when it cannot be written.
void write_file(const std::string& path, const std::string& bytes);

}  // namespace quire::cli
