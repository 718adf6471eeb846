#include "text/vocabulary.h"

#include <unordered_map>

#include "base/error.h"

namespace quire {

std::vector<double> scores_of_merges(const Vocabulary& vocabulary) {
  std::unordered_map<std::string_view, size_t> ids;
  ids.reserve(vocabulary.tokens.size());
  const auto is_piece = [&](size_t id) {
    return vocabulary.token_types[id] == kTokenNormal || vocabulary.token_types[id] == kTokenUserDefined;
  };
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (is_piece(id)) ids.emplace(vocabulary.tokens[id], id);
  }

  // A token ranks with the first of its merges; the others must come before the merges of any other token.
  constexpr size_t kNone = ~size_t{0};
  std::vector<size_t> first(vocabulary.tokens.size(), kNone);
  std::vector<size_t> n_merges(vocabulary.tokens.size(), 0);
  std::string text;
  size_t before = kNone;
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view merge = vocabulary.merges[rank];
    const size_t space = merge.find(' ');
    const auto found = space == std::string_view::npos
                           ? ids.end()
                           : ids.find(text.assign(merge.substr(0, space)).append(merge.substr(space + 1)));
    if (found == ids.end()) throw Error("merge " + std::to_string(rank) + " makes a piece that is no token");
    const size_t id = found->second;
    if (first[id] == kNone) {
      first[id] = rank;
    } else if (id != before) {
      throw Error("the merges that make the token '" + std::string(merge) + "' do not stand together");
    }
    ++n_merges[id];
    before = id;
  }
  std::vector<double> scores(vocabulary.tokens.size(), 0);
  for (size_t id = 0; id < scores.size(); ++id) {
    // By scores a token is made of any two that spell it, also one that no merge makes.
    if (first[id] == kNone && vocabulary.token_types[id] != kTokenNormal) continue;
    const std::string_view token = vocabulary.tokens[id];
    size_t n_ways = 0;
    for (size_t at = 1; at < token.size(); ++at) {
      n_ways += ids.contains(token.substr(0, at)) && ids.contains(token.substr(at)) ? 1 : 0;
    }
    if (n_ways != n_merges[id]) {
      throw Error("the token '" + std::string(token) + "' can be made in " + std::to_string(n_ways) +
                  " ways, of which only " + std::to_string(n_merges[id]) + " are merges");
    }
    if (first[id] != kNone) scores[id] = -1.0 - static_cast<double>(first[id]);
  }
  return scores;
}

}  // namespace quire
