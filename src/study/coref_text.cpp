#include "study/coref_text.h"

#include <span>
#include <unordered_set>

#include "base/error.h"
#include "study/chance.h"
#include "study/words.h"

namespace quire {
namespace {

using Text = std::string_view;

constexpr uint64_t kNameSalt = 0xc03ef;
constexpr uint64_t kItemSalt = 0xc03f0;

// How a place comes in, and how a question comes back to it.
struct QuestionFrame {
  Text lead;
  Text question;
};

constexpr std::array<QuestionFrame, 16> kQuestionFrames = {{
    {"We spent that winter in a small town in the hills called",
     "The town in the hills where we spent the winter, as I told you, was called"},
    {"My grandmother was born in a fishing village by the name of",
     "If anyone asks, the fishing village where my grandmother was born had the name of"},
    {"The old railway ended at a lonely station known as",
     "And the lonely station at which the old railway ended was known as"},
    {"After the flood the whole family moved to a farm called",
     "To come back to the flood: the farm that the family moved to afterwards was called"},
    {"The expedition left from a harbour on the north coast named",
     "The harbour on the north coast from which the expedition left was named"},
    {"Every spring the painters meet in a mountain valley called",
     "The mountain valley in which the painters meet every spring is called"},
    {"The letter had been posted in a market town called",
     "The market town in which the letter was posted is called"},
    {"As a boy he had lived for a year on an island named",
     "The island on which he had lived for a year as a boy was named"},
    {"The treasure, they say, still lies under the castle of",
     "The castle under which, as they say, the treasure still lies is that of"},
    {"Our teacher came from a city in the far south called",
     "The city in the far south from which our teacher came was called"},
    {"The two brothers kept a small inn in the village of",
     "The village in which the two brothers kept their small inn was the village of"},
    {"The new observatory was built on a hill outside",
     "The new observatory that I spoke of was built on a hill outside"},
    {"She learned to ride on a wide plain near the town of",
     "The town near the wide plain on which she learned to ride is the town of"},
    {"The bakers of the kingdom held their great fair in",
     "The place in which the bakers of the kingdom held their great fair was"},
    {"At the end of the road there was an abandoned mine called",
     "The abandoned mine at the end of the road, to name it once more, was called"},
    {"The ferry crosses the lake twice a day to a landing called",
     "The landing to which the ferry crosses twice a day is called"},
}};

constexpr std::array<Text, 20> kGardening = {
    "Water the seedlings in the evening, when the ground is cool.",
    "Roses want to be cut back before the first warm days.",
    "A handful of ashes keeps the snails away for a night or two.",
    "Turn the compost twice a year and never let it dry out.",
    "Carrots grow straight in sand and crooked in heavy clay.",
    "Bees come early to whoever plants crocuses under the trees.",
    "Ivy climbs any wall, but it does not let go again.",
    "Cut the grass high in a dry summer and low in a wet one.",
    "Old apple trees bear well in one year and rest in the next.",
    "Frost in May has spoiled more cherries than all the birds together.",
    "Tulips come back for years if their leaves may wither in peace.",
    "Plant the hedge close, and cut it when the young birds have flown.",
    "Weeds are pulled most easily on the morning after rain.",
    "Cover the beds with straw as soon as the nights grow cold.",
    "Lavender likes stones, sun and to be forgotten now and then.",
    "Never dig where the peonies stand, as they do not forgive it.",
    "Peas climb on twigs, and beans want a pole of their own.",
    "A pond needs half a day of shade to stay clear.",
    "Sow the radishes every other week and you will always have some.",
    "The spade should be cleaned and oiled before the winter.",
};

constexpr std::array<Text, 26> kPhilosophy = {
    "Philosophers have long asked whether we can be certain of anything at all.",
    "To doubt everything is easy to say and very hard to do.",
    "A choice is free, some hold, only if we could have chosen otherwise.",
    "Others reply that a free choice is one that agrees with our own reasons.",
    "What makes an act good may be its result, or the will behind it.",
    "If only results count, then a lucky mistake is as good as a wise plan.",
    "Knowledge was once said to be belief that is both true and justified.",
    "A stopped clock is right twice a day, and yet nobody learns the time from it.",
    "The mind seems to be one thing and the body another, but they move together.",
    "Nobody has seen a cause; we only see one event after another.",
    "The self may be a thing, or only a bundle of memories.",
    "A ship whose planks are all replaced is either the same ship or another one.",
    "Beauty is in the eye, they say, but eyes agree more often than one would think.",
    "A law is just when those who live under it would have chosen it.",
    "Words get their meaning from the way in which people use them.",
    "Whoever says that nothing is true asks us to believe at least one sentence.",
    "The ancients thought that virtue lies in the middle between two faults.",
    "To know that one knows little is held to be the beginning of wisdom.",
    "Happiness, some wrote, is not a feeling but a way to live.",
    "We trust our senses because we have nothing better to test them with.",
    "Time passes, or perhaps it is only we who pass through it.",
    "A promise binds us even when it would pay to break it.",
    "One can describe every nerve and still not know what pain is like.",
    "Reason tells us how to reach an end, but hardly which end to want.",
    "If the future is settled, our worries about it were settled as well.",
    "An argument can be valid from the first step to the last and still begin with nonsense.",
};

constexpr std::array<Text, 26> kCooking = {
    "Heat the oil in a heavy pan before the onions go in.",
    "Onions need patience: ten minutes on a low flame make them sweet.",
    "Salt the water for the noodles until it tastes like the sea.",
    "A good stock begins with cold water and never boils hard.",
    "Beat the eggs with a little milk and a pinch of pepper.",
    "Butter browns quickly, so take the pan off the fire in time.",
    "Bread dough should rest under a damp cloth until it has doubled.",
    "Knead it again, shape it, and let it rest once more.",
    "Cut the carrots thin and the potatoes thick, and both will be done together.",
    "Fresh herbs go in at the end, dried ones at the beginning.",
    "A spoon of vinegar wakes up a tired soup.",
    "Rice should be washed until the water stays clear.",
    "Roast the garlic whole, and it turns soft and mild.",
    "Never wash mushrooms for long, as they drink up the water.",
    "Let the meat stand for a while before you cut it.",
    "Sugar and lemon together make almost any fruit taste better.",
    "Whip the cream only when everything else is ready.",
    "Beans that have soaked over night cook in half the time.",
    "Pour the sauce through a sieve if there are lumps in it.",
    "Dry the fish well, or its skin will stick to the pan.",
    "Apples for a pie should be sour and firm.",
    "Cinnamon goes with apples, and nutmeg goes with spinach.",
    "A pinch of salt belongs into every sweet dough.",
    "Cover the pot, turn the flame down and wait for twenty minutes.",
    "Tomatoes peel easily after a moment in boiling water.",
    "Taste the dish before you serve it, and then taste it again.",
};

constexpr std::array<Text, 26> kMathematics = {
    "A prime number has no divisors but one and itself.",
    "There is no largest prime, as a short argument shows.",
    "The sum of the first odd numbers is always a square.",
    "In a right triangle the squares of the short sides add up to that of the long one.",
    "The diagonal of a square cannot be written as a fraction of its side.",
    "A circle holds the largest area that a fence of given length can hold.",
    "Two lines in a plane meet once, or never, or everywhere.",
    "Dividing by zero has no meaning, however one turns it.",
    "Every whole number above one is a product of primes in just one way.",
    "The angles of a triangle add up to half a turn.",
    "A graph can be drawn in one stroke if at most two of its points are odd.",
    "Half of a half of a half is an eighth, and so on without an end.",
    "An infinite sum can have a finite value.",
    "There are as many even numbers as there are whole numbers.",
    "But there are more points on a line than there are fractions.",
    "A function is continuous when small steps lead to small changes.",
    "Its slope at a point is the limit of the slopes nearby.",
    "Areas and slopes are two sides of one coin.",
    "Among any thirteen people two were born in the same month.",
    "The average of many throws of a die comes close to three and a half.",
    "A proof by contradiction begins with the opposite of what it wants.",
    "Multiplying two negative numbers gives a positive one.",
    "Every map can be coloured with four colours.",
    "A cube has six faces, eight corners and twelve edges.",
    "The order in which numbers are added does not matter.",
    "Symmetry often tells the answer before any calculation does.",
};

constexpr std::array<std::span<const Text>, kCorefSubjects> kSubjects = {kPhilosophy, kCooking, kMathematics};

constexpr std::array<Text, 24> kStarts = {"Vel", "Tor", "Bran", "Quil", "Osk", "Dro", "Fen", "Gal",
                                          "Hes", "Jor", "Kal",  "Lum",  "Mor", "Nax", "Pel", "Ruv",
                                          "Sil", "Tam", "Ulv",  "Wex",  "Yar", "Zan", "Cor", "Eld"};
constexpr std::array<Text, 12> kMiddles = {"a",  "o",  "e",   "ana", "ori", "eki",
                                           "un", "is", "alo", "ev",  "ir",  "omi"};
constexpr std::array<Text, 16> kEnds = {"mora", "dun",  "wick", "thal", "ster", "vik",  "lund", "gard",
                                        "bris", "nash", "rova", "tine", "zelk", "pont", "dale", "quor"};
static_assert(kStarts.size() * kMiddles.size() * kEnds.size() > 2 * kMostCorefItems);

std::string make_name(Random& random) {
  return concat({" ", pick(random, std::span<const Text>(kStarts)),
                 pick(random, std::span<const Text>(kMiddles)), pick(random, std::span<const Text>(kEnds))});
}

}  // namespace

std::vector<CorefItem> make_coref_items(uint64_t seed, size_t n) {
  QUIRE_CHECK(n <= kMostCorefItems);
  Random names = random_of(seed, kNameSalt);
  std::unordered_set<std::string> used;
  std::vector<CorefItem> items(n);
  for (size_t i = 0; i < n; ++i) {
    CorefItem& item = items[i];
    Random random = random_of(seed, kItemSalt, i);
    const QuestionFrame& frame = pick(random, std::span<const QuestionFrame>(kQuestionFrames));
    do {
      item.name = make_name(names);
    } while (!used.insert(item.name).second);
    item.prelude.assign(kGardening.begin(), kGardening.end());
    shuffle(random, item.prelude);
    item.lead = frame.lead;
    item.question = concat({"\n\n", frame.question});
    for (size_t subject = 0; subject < kCorefSubjects; ++subject) {
      item.fillers[subject].assign(kSubjects[subject].begin(), kSubjects[subject].end());
      shuffle(random, item.fillers[subject]);
    }
  }
  return items;
}

}  // namespace quire
