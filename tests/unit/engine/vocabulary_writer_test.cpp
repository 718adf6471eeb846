#include "engine/vocabulary_writer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/vocabulary_reader.h"

namespace quire::test {
namespace {

Vocabulary small_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre_tokenizer = "smollm";
  vocabulary.tokens = {"a", "b", "ab", "<end>"};
  vocabulary.token_types = {kTokenNormal, kTokenNormal, kTokenNormal, kTokenControl};
  vocabulary.merges = {"a b"};
  vocabulary.bos_id = 3;
  vocabulary.eos_id = 3;
  vocabulary.add_bos = true;
  return vocabulary;
}

GgufFile written(const Vocabulary& vocabulary, uint64_t n_rows) {
  MetadataBuilder metadata;
  add_vocabulary(vocabulary, "llama", n_rows, metadata);
  ModelParts parts;
  parts.path = "written";
  parts.metadata = std::move(metadata.entries);
  parts.memory = std::move(metadata.memory);
  return GgufFile::from_parts(std::move(parts));
}

TEST(VocabularyWriter, WhatIsWrittenIsReadAgain) {
  const Vocabulary vocabulary = small_vocabulary();
  const GgufFile file = written(vocabulary, 4);
  const Vocabulary read = read_vocabulary(file);
  EXPECT_EQ(read.model, vocabulary.model);
  EXPECT_EQ(read.pre_tokenizer, vocabulary.pre_tokenizer);
  EXPECT_EQ(read.tokens, vocabulary.tokens);
  EXPECT_EQ(read.token_types, vocabulary.token_types);
  EXPECT_EQ(read.merges, vocabulary.merges);
  EXPECT_EQ(read.bos_id, vocabulary.bos_id);
  EXPECT_EQ(read.eos_id, vocabulary.eos_id);
  EXPECT_EQ(read.eot_id, vocabulary.eot_id);
  EXPECT_EQ(read.eom_id, vocabulary.eom_id);
  EXPECT_EQ(read.add_bos, vocabulary.add_bos);
  EXPECT_EQ(read.add_eos, vocabulary.add_eos);
}

TEST(VocabularyWriter, PiecesHaveScores) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "a", "b", "ab", "<end>", "<turn>"};
  vocabulary.token_types = {kTokenUnknown, kTokenNormal,  kTokenNormal,
                            kTokenNormal,  kTokenControl, kTokenControl};
  vocabulary.merges = {"a b"};
  vocabulary.eos_id = 4;
  vocabulary.end_ids = {4, 5};
  vocabulary.unk_id = 0;
  vocabulary.add_space_prefix = false;
  const GgufFile file = written(vocabulary, 7);
  const OwnedVocabulary read = read_vocabulary(file);
  EXPECT_EQ(read.scores, (std::vector<double>{0, 0, 0, -1, 0, 0, 0}));
  EXPECT_TRUE(read.merges.empty());
  EXPECT_EQ(read.eot_id, 5);
  EXPECT_EQ(read.unk_id, 0);
  EXPECT_FALSE(read.add_space_prefix);
  vocabulary.gguf_obstacle = "it has no name for the pre-tokenizer";
  EXPECT_THROW(written(vocabulary, 7), Error);
}

TEST(VocabularyWriter, LiteralsThatGgufCannotSayAreRefused) {
  const auto write = [](const LiteralRule& rule, std::string_view architecture) {
    Vocabulary vocabulary = small_vocabulary();
    vocabulary.literals = {rule};
    MetadataBuilder metadata;
    return add_vocabulary(vocabulary, architecture, 4, metadata);
  };
  LiteralRule right{3}, left{3}, single{3}, normalized{3};
  right.strip_right = left.strip_left = single.single_word = normalized.normalized = true;
  for (const LiteralRule& rule : {right, left, single}) EXPECT_THROW(write(rule, "llama"), Error);
  EXPECT_TRUE(write(normalized, "llama").empty());
  EXPECT_EQ(write(right, "phi3").size(), 1u);  // byte-level, where no reader knows of it
  EXPECT_THROW(write(left, "phi3"), Error);
}

TEST(VocabularyWriter, WhatIsLeftOutIsNoted) {
  const auto notes = [](auto change) {
    Vocabulary vocabulary = small_vocabulary();
    vocabulary.rules = TextRules{};
    change(vocabulary);
    MetadataBuilder metadata;
    return add_vocabulary(vocabulary, "llama", 4, metadata).size();
  };
  using Kind = NormalStep::Kind;
  EXPECT_EQ(notes([](Vocabulary&) {}), 0u);
  EXPECT_EQ(notes([](Vocabulary& v) { v.rules->normalizer = {{Kind::kNfc}}; }), 1u);
  EXPECT_EQ(notes([](Vocabulary& v) { v.end_ids = {2, 3}; }), 0u);
  EXPECT_EQ(notes([](Vocabulary& v) { v.end_ids = {1, 2, 3}; }), 1u);
  const auto pieces = [](Vocabulary& v, Kind kind) {
    v.model = "llama";
    v.rules->marking = {{kind, "", "\xE2\x96\x81"}};
  };
  EXPECT_EQ(notes([&](Vocabulary& v) { pieces(v, Kind::kPrepend); }), 0u);
  EXPECT_EQ(notes([&](Vocabulary& v) { pieces(v, Kind::kPrependOnce); }), 1u);
  EXPECT_EQ(notes([&](Vocabulary& v) { pieces(v, Kind::kPrependFirst); }), 1u);
}

TEST(VocabularyWriter, RowsWithoutATokenGetUnusedOnes) {
  const Vocabulary vocabulary = small_vocabulary();
  const GgufFile file = written(vocabulary, 6);
  const Vocabulary read = read_vocabulary(file);
  ASSERT_EQ(read.tokens.size(), 6u);
  EXPECT_EQ(read.tokens[4], "[PAD0]");
  EXPECT_EQ(read.tokens[5], "[PAD1]");
  EXPECT_EQ(read.token_types[5], kTokenUnused);
  EXPECT_THROW(written(vocabulary, 3), Error);
}

TEST(VocabularyReader, AnErrorOfTheTokenizerNamesTheFile) {
  try {
    load_tokenizer(written(small_vocabulary(), 4));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "written: the vocabulary has no token for byte 10, thus it is not a byte-level one");
  }
}

}  // namespace
}  // namespace quire::test
