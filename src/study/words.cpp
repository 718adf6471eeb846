#include "study/words.h"

#include <array>

#include "study/chance.h"

namespace quire {
namespace {

using Word = std::string_view;

constexpr std::array<Word, 64> kNames = {
    "Aldous",  "Amparo",  "Anneke",  "Bashir",   "Birgit",  "Bohdan",   "Calixta",  "Casimir",
    "Chidi",   "Dagmar",  "Darko",   "Delphine", "Eamon",   "Edda",     "Eustace",  "Farida",
    "Fenella", "Florian", "Gerda",   "Gideon",   "Goran",   "Halima",   "Hanneke",  "Hiroshi",
    "Ilse",    "Imogen",  "Ingvar",  "Jarek",    "Jocasta", "Kaspar",   "Keziah",   "Kofi",
    "Lavinia", "Leopold", "Linnea",  "Magnus",   "Malika",  "Mirek",    "Nadezhda", "Nils",
    "Noor",    "Octavia", "Olumide", "Otto",     "Paloma",  "Petra",    "Quentin",  "Radomir",
    "Rosalba", "Ruben",   "Sabine",  "Severin",  "Tamsin",  "Thaddeus", "Ulrike",   "Umberto",
    "Valter",  "Vesna",   "Wilhelm", "Xanthe",   "Yannick", "Yevgenia", "Zainab",   "Zoltan"};

constexpr std::array<Word, 32> kPlaces = {
    "harbour", "library", "bakery",    "station",    "cellar",  "orchard",  "tower",     "garden",
    "museum",  "theatre", "mill",      "stable",     "chapel",  "workshop", "warehouse", "kitchen",
    "office",  "archive", "ferry",     "barn",       "school",  "hospital", "factory",   "hotel",
    "locker",  "vault",   "boathouse", "greenhouse", "laundry", "pharmacy", "quarry",    "lighthouse"};

constexpr std::array<Word, 64> kAdjectives = {
    "amber",  "ancient", "blue",   "bold",    "brave",   "brisk", "broad",  "calm",   "careful", "cheap",
    "clever", "cold",    "copper", "crooked", "curious", "damp",  "dark",   "deep",   "distant", "dusty",
    "early",  "eager",   "faded",  "famous",  "fierce",  "foggy", "frozen", "gentle", "golden",  "grey",
    "happy",  "heavy",   "hollow", "humble",  "hungry",  "idle",  "jolly",  "large",  "late",    "lazy",
    "little", "lonely",  "loud",   "marble",  "narrow",  "noble", "odd",    "pale",   "plain",   "proud",
    "purple", "quick",   "quiet",  "rapid",   "round",   "rusty", "sharp",  "silent", "simple",  "steep",
    "tall",   "velvet",  "warm",   "wild"};

constexpr std::array<Word, 96> kNouns = {
    "acorn",   "anchor",  "apple",   "arrow",    "badger",  "banner",   "barrel",   "basket",  "beacon",
    "bell",    "blanket", "boat",    "bottle",   "bridge",  "bucket",   "button",   "cabin",   "candle",
    "canyon",  "carpet",  "castle",  "cherry",   "clock",   "cloud",    "coin",     "compass", "cradle",
    "crane",   "crown",   "desert",  "diamond",  "dolphin", "door",     "eagle",    "engine",  "feather",
    "fiddle",  "flute",   "forest",  "fountain", "fox",     "garlic",   "glacier",  "hammer",  "harp",
    "hedge",   "honey",   "island",  "jacket",   "kettle",  "ladder",   "lamp",     "lantern", "lemon",
    "lizard",  "magnet",  "map",     "meadow",   "mirror",  "mountain", "needle",   "oyster",  "paddle",
    "paper",   "pebble",  "pepper",  "pillow",   "pocket",  "quilt",    "rabbit",   "raven",   "ribbon",
    "river",   "saddle",  "sailor",  "shovel",   "spoon",   "statue",   "sugar",    "table",   "temple",
    "thunder", "ticket",  "tiger",   "trumpet",  "tunnel",  "turtle",   "umbrella", "valley",  "violin",
    "wagon",   "walnut",  "whistle", "willow",   "window",  "winter"};

constexpr std::array<Word, 24> kVerbs = {
    "carried",  "sold",      "painted",  "buried", "counted", "stolen",  "repaired", "followed",
    "washed",   "broken",    "found",    "lost",   "bought",  "hidden",  "lifted",   "measured",
    "polished", "forgotten", "borrowed", "burned", "dropped", "guarded", "named",    "returned"};

constexpr std::array<Word, 24> kBeings = {
    "sailors", "bakers",  "foxes",    "horses", "children", "judges",  "ravens",  "painters",
    "nurses",  "farmers", "soldiers", "monks",  "dancers",  "pirates", "tailors", "doctors",
    "thieves", "hunters", "cousins",  "goats",  "poets",    "cooks",   "pilots",  "neighbours"};

constexpr std::array<Word, 18> kNumberWords = {
    "two",    "three",  "four",     "five",     "six",     "seven",   "eight",     "nine",     "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};

}  // namespace

std::span<const Word> first_names() { return kNames; }
std::span<const Word> place_nouns() { return kPlaces; }
std::span<const Word> adjectives() { return kAdjectives; }
std::span<const Word> nouns() { return kNouns; }
std::span<const Word> past_verbs() { return kVerbs; }
std::span<const Word> plural_beings() { return kBeings; }
std::span<const Word> number_words() { return kNumberWords; }

std::string concat(std::initializer_list<Word> parts) {
  std::string out;
  for (const Word part : parts) out += part;
  return out;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string join_list(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " and " : ", ";
    out += words[i];
  }
  return out;
}

std::string compound_word(Random& random) {
  return concat({pick(random, adjectives()), "-", pick(random, nouns())});
}

std::string decimal_number(Random& random, int n_digits) {
  std::string digits(1, static_cast<char>('1' + below(random, 9)));
  for (int i = 1; i < n_digits; ++i) digits += static_cast<char>('0' + below(random, 10));
  return digits;
}

std::string uuid(Random& random) {
  constexpr Word kHex = "0123456789abcdef";
  std::string id;
  for (const size_t n_digits : {8, 4, 4, 4, 12}) {
    if (!id.empty()) id += '-';
    for (size_t i = 0; i < n_digits; ++i) id += kHex[below(random, 16)];
  }
  id[14] = '4';                         // the version
  id[19] = kHex[8 + below(random, 4)];  // the variant, binary 10xx
  return id;
}

std::string letters(Random& random, size_t n, char first_letter) {
  std::string word;
  for (size_t i = 0; i < n; ++i)
    word += static_cast<char>(first_letter + static_cast<char>(below(random, 26)));
  return word;
}

}  // namespace quire
