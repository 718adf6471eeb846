// Words that facts and tasks are made of.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/random.h"

namespace quire {

std::span<const std::string_view> first_names();    // 64, none of them common in novels
std::span<const std::string_view> place_nouns();    // 32 things that have codes and doors
std::span<const std::string_view> adjectives();     // 64
std::span<const std::string_view> nouns();          // 96, each one a thing
std::span<const std::string_view> past_verbs();     // 24 participles: what can be done to a thing
std::span<const std::string_view> plural_beings();  // 24 that can do it
std::span<const std::string_view> number_words();   // two to nineteen

std::string concat(std::initializer_list<std::string_view> parts);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
// "a", "a and b", "a, b and c"
std::string join_list(const std::vector<std::string>& words);

// "brisk-lantern"
std::string compound_word(Random& random);
// Exactly so many decimal digits, the first of them not 0.
std::string decimal_number(Random& random, int n_digits);
// Of version 4: 8-4-4-4-12 hexadecimal digits.
std::string uuid(Random& random);
// n letters of an alphabet ("a".."z" or "A".."Z").
std::string letters(Random& random, size_t n, char first_letter);

}  // namespace quire
