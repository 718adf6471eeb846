#include "study/long_prompts.h"

#include <array>

namespace quire {
namespace {

constexpr std::array<std::string_view, 20> kPrompts = {
    "Write a long story, of at least 1,500 words, about a lighthouse keeper who finds a letter in a bottle. "
    "Describe the island, the storm and the people whom the keeper meets.",
    "Explain in detail, step by step and with examples, how a small town could build its own library, from "
    "the first meeting to the day when it opens.",
    "Write the first three chapters of a novel about two sisters who inherit a watchmaker's shop. Each "
    "chapter should have several scenes with dialogue.",
    "Give a thorough introduction to the history of bridges, from tree trunks to suspension bridges. Write a "
    "section for every age, with the reasons for each change.",
    "Describe a journey of thirty days across a mountain range, day by day, in the form of a diary. Nothing "
    "should happen twice.",
    "Write a detailed course in gardening for beginners, month by month, from January to December. Say for "
    "each month what to plant, what to watch for and why.",
    "Compare the lives of a fisherman, a baker, a nurse and a train driver. Tell one whole working day of "
    "each of them, hour by hour, and what they think in the evening.",
    "Write a long essay on why people keep promises. Consider at least six reasons, an objection to each, "
    "and "
    "an answer to the objection.",
    "Tell the story of a village that moves its church stone by stone to the other side of a river. Write it "
    "as an old man would tell it to children, with all the digressions.",
    "Explain how a computer works to a curious child, starting with a light switch and ending with a "
    "program. "
    "Take as much room as you need and use many comparisons.",
    "Write a play in three acts about an inventor whose machine answers every question wrongly. Give all the "
    "speeches and the stage directions.",
    "Plan a museum of everyday things. Describe twenty different objects in it, each with a paragraph on "
    "where it came from, who used it and what became of them.",
    "Write a long letter from a traveller to a friend, about a city that the friend has never seen: its "
    "streets, markets, food, weather, music and quarrels.",
    "Give a complete account of how bread is made, from the field to the table, with the chemistry, the "
    "tools "
    "and the mistakes that one can make at each step.",
    "Write a detective story in which a clock is stolen from a town hall. Introduce five suspects, let each "
    "of "
    "them be questioned, and solve the case at the end.",
    "Discuss at length what a school would be like in which pupils choose all their subjects. Look at it "
    "from "
    "the side of pupils, teachers, parents and employers.",
    "Describe the water cycle in as much detail as you can: seas, clouds, rain, rivers, ice, plants and "
    "people. Then tell the life of one drop of water as a story.",
    "Write a speech of half an hour for the hundredth birthday of a small orchestra, with its history, its "
    "conductors, its disasters and its plans.",
    "Write a guide for someone who moves into an old house in the country: roof, walls, water, heating, "
    "garden and neighbours, with a list of what to do first and why.",
    "Invent a country, and write the article of an encyclopedia about it: geography, history, government, "
    "economy, customs, language and famous people.",
};

}  // namespace

std::span<const std::string_view> long_prompts() { return kPrompts; }

}  // namespace quire
