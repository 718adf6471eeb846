// Texts of the synthetic co-reference task (TokenButler, arXiv 2503.07518, section on token importance): a
// place is brought in by its name among other subjects, and a question ties back to it. All sentences and
// names are our own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

constexpr size_t kCorefSubjects = 3;  // philosophy, cooking, mathematics
// Names there are.
constexpr size_t kMostCorefItems = 2000;

// prelude + lead + name + "." + fillers + question, which the name answers:
//
//   Water the seedlings in the evening ... We spent that winter in a small town in the hills called|
//   Velmora|. Philosophers have ... Heat the oil ... A prime has ...|
//
//   The town in the hills where we spent the winter, as I told you, was called| Velmora
struct CorefItem {
  // Sentences of another subject, so that the name does not stand at the beginning.
  std::vector<std::string_view> prelude;
  std::string lead;
  std::string name;      // with the blank before it
  std::string question;  // a paragraph of its own
  // Sentences of each subject, without the blank before them, more than a prompt holds.
  std::array<std::vector<std::string_view>, kCorefSubjects> fillers;
};

// n <= kMostCorefItems items, with different names. The same for a seed; the first of more items are those of
// fewer.
std::vector<CorefItem> make_coref_items(uint64_t seed, size_t n);

}  // namespace quire
