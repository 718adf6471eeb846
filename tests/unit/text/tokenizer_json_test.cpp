// tokenizer.json: what is read, and what is refused by name. The same files against Hugging Face's own
// reader: tests/e2e/tokenizers_test.py.
#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "text/tokenizer.h"
#include "unit/temporary_folder.h"

namespace quire {
namespace {

using Ids = std::vector<int32_t>;

// A file of its parts; an empty one is left out.
struct File {
  std::string model =
      R"({"type":"BPE","unk_token":"<unk>","fuse_unk":true,"vocab":{"<unk>":0,"<s>":1,"a":2,"b":3,"ab":4,"▁":5,"▁ab":6},)"
      R"("merges":["a b",["▁","ab"]]})";
  std::string normalizer =
      R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]})";
  std::string pre_tokenizer = "null";
  std::string decoder =
      R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"Fuse"},)"
      R"({"type":"Strip","content":" ","start":1,"stop":0}]})";
  std::string post_processor = "null";
  std::string added = R"([{"id":1,"content":"<s>","special":true,"normalized":false}])";

  std::string text() const {
    std::string json = R"({"version":"1.0","truncation":null,"padding":null)";
    const auto add = [&](const char* name, const std::string& part) {
      if (!part.empty()) json.append(",\"").append(name).append("\":").append(part);
    };
    add("added_tokens", added);
    add("normalizer", normalizer);
    add("pre_tokenizer", pre_tokenizer);
    add("post_processor", post_processor);
    add("decoder", decoder);
    add("model", model);
    return json.append("}");
  }
};

std::string json_error(const std::string& json) {
  try {
    Tokenizer tokenizer(read_tokenizer_json(json, "t.json"));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TokenizerJson, BpeOverCharacters) {
  const OwnedVocabulary vocabulary = read_tokenizer_json(File().text(), "t.json");
  EXPECT_EQ(vocabulary.model, "llama");
  EXPECT_EQ(vocabulary.unk_id, 0);
  EXPECT_TRUE(vocabulary.add_space_prefix);
  EXPECT_EQ(vocabulary.gguf_obstacle, "");
  const Tokenizer tokenizer(vocabulary);
  EXPECT_EQ(tokenizer.encode("ab <s>xya", ControlTokens::kParse), (Ids{6, 5, 1, 5, 0, 2}));
  EXPECT_EQ(tokenizer.decode(Ids{6, 6}), "ab ab");
  EXPECT_EQ(scores_of_merges(vocabulary), (std::vector<double>{0, 0, 0, 0, -1, 0, -2}));
}

TEST(TokenizerJson, UnigramAndItsScores) {
  File file;
  file.model =
      R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["<s>",0],["▁",-3],["a",-1.5],["▁a",-2]],"byte_fallback":false})";
  file.normalizer = "null";
  file.pre_tokenizer = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";
  file.decoder = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";
  const OwnedVocabulary vocabulary = read_tokenizer_json(file.text(), "t.json");
  EXPECT_EQ(vocabulary.model, "t5");
  const Tokenizer tokenizer(vocabulary);
  EXPECT_EQ(tokenizer.encode("a  aa", ControlTokens::kAsText), (Ids{4, 2, 4, 3}));
  EXPECT_EQ(tokenizer.decode(Ids{4, 2, 4, 3}), "a  aa");
}

TEST(TokenizerJson, TheTemplateNamesBothEnds) {
  File file;
  file.post_processor =
      R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
      R"({"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}}]})";
  const OwnedVocabulary vocabulary = read_tokenizer_json(file.text(), "t.json");
  EXPECT_EQ(vocabulary.bos_id, 1);
  EXPECT_TRUE(vocabulary.add_bos);
  EXPECT_FALSE(vocabulary.add_eos);
}

TEST(TokenizerJson, GapsBetweenIdsAreUnused) {
  File file;
  file.added = R"([{"id":9,"content":"<tool>","special":false,"lstrip":true}])";
  const OwnedVocabulary vocabulary = read_tokenizer_json(file.text(), "t.json");
  ASSERT_EQ(vocabulary.tokens.size(), 10u);
  EXPECT_EQ(vocabulary.tokens[8], "[UNUSED8]");
  EXPECT_EQ(vocabulary.token_types[8], kTokenUnused);
  EXPECT_EQ(Tokenizer(vocabulary).encode("a <tool>", ControlTokens::kAsText), (Ids{5, 2, 9}));
}

// Text that no token spells never becomes a token that ends a text or marks a turn.
TEST(TokenizerJson, TheUnknownTokenIsNoControlToken) {
  const auto encoded = [](std::string unknown, const std::string& added, std::optional<int32_t> eos) {
    File file;
    file.model =
        R"({"type":"BPE","unk_token":"@","vocab":{"@":0,"a":1,"b":2,"ab":3,"▁":4},"merges":["a b"]})";
    for (size_t at = 0; (at = file.model.find('@')) != std::string::npos;) file.model.replace(at, 1, unknown);
    file.added =
        added.empty() ? "[]" : R"([{"id":0,"content":")" + unknown + R"(","special":)" + added + "}]";
    OwnedVocabulary vocabulary = read_tokenizer_json(file.text(), "t.json");
    vocabulary.eos_id = eos;
    return Tokenizer(vocabulary).encode("axb", ControlTokens::kAsText);
  };
  const Ids with{4, 1, 0, 2}, without{4, 3};  // neighbours of what is dropped meet
  EXPECT_EQ(encoded("<unk>", "", std::nullopt), with);
  EXPECT_EQ(encoded("<unk>", "true", std::nullopt), with);
  EXPECT_EQ(encoded("[UNK]", "true", std::nullopt), with);
  EXPECT_EQ(encoded("<unk>", "true", 0), without);
  EXPECT_EQ(encoded("?", "", std::nullopt), with);
  EXPECT_EQ(encoded("?", "true", std::nullopt), without);
  EXPECT_EQ(encoded("<|endoftext|>", "", std::nullopt), without);
  EXPECT_EQ(encoded("<|endoftext|>", "false", std::nullopt), without);
}

TEST(TokenizerJson, UnknownPartsAreRefusedByName) {  // cases U13, U41
  const auto with = [](auto change) {
    File file;
    change(file);
    return json_error(file.text());
  };
  EXPECT_EQ(with([](File&) {}), "no error");
  EXPECT_EQ(with([](File& f) { f.normalizer = R"({"type":"BertNormalizer"})"; }),
            "t.json: normalizer 'BertNormalizer' is not supported");
  EXPECT_EQ(with([](File& f) { f.normalizer = R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})"; }),
            "t.json: normalizer 'Precompiled' has a table of replacements, which is not supported");
  EXPECT_EQ(with([](File& f) { f.normalizer = R"({"type":"NFC","extra":1})"; }),
            "t.json: normalizer 'NFC' has the field 'extra', which is not known");
  EXPECT_EQ(with([](File& f) { f.pre_tokenizer = R"({"type":"UnicodeScripts"})"; }),
            "t.json: pre_tokenizer 'UnicodeScripts' is not supported");
  EXPECT_EQ(with([](File& f) {
              f.pre_tokenizer =
                  R"j({"type":"Split","pattern":{"Regex":"(?m:a)"},"behavior":"Removed","invert":false})j";
            }),
            "the regular expression '(?m:a)' has the option '(?m', which is not supported");
  EXPECT_EQ(with([](File& f) {
              f.pre_tokenizer = R"({"type":"ByteLevel","use_regex":true,"add_prefix_space":false})";
            }),
            "t.json: of pre_tokenizer and decoder only one is ByteLevel");
  EXPECT_EQ(with([](File& f) { f.decoder = R"({"type":"WordPiece"})"; }),
            "t.json: decoder 'WordPiece' is not supported");
  EXPECT_EQ(with([](File& f) { f.decoder = "null"; }), "t.json: it has no decoder");
  EXPECT_EQ(with([](File& f) { f.post_processor = R"({"type":"BertProcessing"})"; }),
            "t.json: post_processor 'BertProcessing' is not supported");
  EXPECT_EQ(with([](File& f) { f.model = R"({"type":"WordPiece","vocab":{}})"; }),
            "t.json: model 'WordPiece' is not supported; supported are BPE and Unigram");
  EXPECT_EQ(with([](File& f) { f.model.insert(1, "\"dropout\":0.1,"); }),
            "t.json: model 'BPE' with dropout is not supported");
  EXPECT_EQ(with([](File& f) { f.model.insert(1, "\"byte_fallback\":true,"); }),
            "t.json: its model has byte_fallback but its decoder has not");
}

TEST(TokenizerJson, DamageIsASentence) {
  const auto with = [](auto change) {
    File file;
    change(file);
    return json_error(file.text());
  };
  EXPECT_EQ(json_error("{"), "t.json: is not JSON at byte 2");
  EXPECT_EQ(json_error("[]"), "t.json: is not a JSON object");
  EXPECT_EQ(json_error(std::string(1000, '[')), "t.json: is nested too deeply");
  EXPECT_EQ(with([](File& f) { f.model = ""; }), "t.json: it has no model");
  EXPECT_EQ(with([](File& f) { f.model = R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":["a b"]})"; }),
            "t.json: its tokens 'a' and 'b' have one id");
  EXPECT_EQ(with([](File& f) { f.model = R"({"type":"BPE","vocab":{"a":4000000000},"merges":["a b"]})"; }),
            "t.json: it has the token id 4000000000 but only 2 tokens");
  EXPECT_EQ(with([](File& f) { f.model = R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"; }),
            "t.json: its token 'a' has no valid id");
  EXPECT_EQ(with([](File& f) { f.model = R"({"type":"BPE","vocab":{"a":"b"},"merges":[]})"; }),
            "t.json: model.vocab is neither an object of texts and ids nor a list of texts and scores");
  EXPECT_EQ(with([](File& f) { f.model = R"({"type":"BPE","vocab":{"a":0},"merges":[["a"]]})"; }),
            "t.json: model.merges is not a list of pairs");
  EXPECT_EQ(with([](File& f) { f.added = R"([{"id":2,"content":"z"}])"; }),
            "t.json: its token 2 is 'a' in the vocabulary and 'z' among the added tokens");
  EXPECT_EQ(with([](File& f) { f.added = R"([{"id":"x"}])"; }),
            "t.json: its added token {\"id\":\"x\"} is malformed");
}

TEST(TokenizerJson, WhatGgufCannotSayIsSaid) {
  File file;
  file.normalizer = R"({"type":"NFKC"})";
  EXPECT_EQ(read_tokenizer_json(file.text(), "t.json").gguf_obstacle,
            "it cannot say what its normalizer does");
  file = File();
  file.pre_tokenizer = R"({"type":"Digits","individual_digits":true})";
  EXPECT_EQ(read_tokenizer_json(file.text(), "t.json").gguf_obstacle,
            "it cannot say how its pre-tokenizer cuts a text");
  file = File();
  file.model.insert(1, R"("ignore_merges":true,)");
  EXPECT_EQ(read_tokenizer_json(file.text(), "t.json").gguf_obstacle,
            "it cannot say that a word that is a token is not merged");
  file = File();
  file.model.replace(file.model.find("true"), 4, "false");
  EXPECT_EQ(read_tokenizer_json(file.text(), "t.json").gguf_obstacle,
            "it cannot say that neighbours that no token spells stay apart");
}

TEST(TokenizerJson, GgufCutsUnigramTextsAtTheMarkOnly) {
  File file;
  file.model = R"({"type":"Unigram","vocab":[["▁",-3],["<s>",0],["a",-1.5],["▁a",-2]]})";
  file.normalizer = "null";
  const std::string metaspace =
      R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";
  file.decoder = metaspace;
  file.pre_tokenizer = metaspace;
  EXPECT_EQ(read_tokenizer_json(file.text(), "t.json").gguf_obstacle, "");
  file.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[)" + metaspace +
                       R"(,{"type":"Digits","individual_digits":true}]})";
  EXPECT_EQ(read_tokenizer_json(file.text(), "t.json").gguf_obstacle,
            "it cannot say how its pre-tokenizer cuts a text");
}

// Merges written as scores, as GGUF has them, give the same tokens.
TEST(TokenizerJson, ScoresInPlaceOfMergesGiveTheSameTokens) {
  File file;
  file.model =
      R"({"type":"BPE","unk_token":"<unk>","fuse_unk":true,"vocab":{"<unk>":0,"<s>":1,"a":2,"b":3,"▁":4,"ab":5,"▁a":6,"▁ab":7,"ba":8,"abab":9},)"
      R"("merges":["a b","▁ a","b a","▁a b","▁ ab","ab ab"]})";
  const OwnedVocabulary merges = read_tokenizer_json(file.text(), "t.json");
  Vocabulary scores = merges;
  scores.rules.reset();
  scores.merges.clear();
  scores.scores = scores_of_merges(merges);
  const Tokenizer by_merges(merges);
  const Tokenizer by_scores(scores);
  std::mt19937 rng(2);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (size_t n = rng() % 40; n > 0; --n) text += "aabb x"[rng() % 6];
    ASSERT_EQ(by_merges.encode(text, ControlTokens::kParse), by_scores.encode(text, ControlTokens::kParse))
        << text;
  }
}

TEST(TokenizerJson, ScoresCannotSayMergesThatAreLeftOut) {
  File file;
  file.model =
      R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"ba":3,"aba":4,"<s>":5},"merges":["a b","b a","ab a"]})";
  file.added = "[]";
  const OwnedVocabulary vocabulary = read_tokenizer_json(file.text(), "t.json");
  EXPECT_THROW(scores_of_merges(vocabulary), Error);
  file.model = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"ba":3,"<s>":4},"merges":["a b"]})";
  EXPECT_THROW(scores_of_merges(read_tokenizer_json(file.text(), "t.json")), Error);
}

class TokenizerFolder : public test::TemporaryFolder {};

TEST_F(TokenizerFolder, TheFilesBesideNameTheEnds) {
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  EXPECT_THROW(read_tokenizer_folder(folder), Error);
  write("tokenizer.json", File().text());
  write(
      "tokenizer_config.json",
      R"({"bos_token":{"content":"<s>"},"eos_token":"ab","add_bos_token":true,"tokenizer_class":"LlamaTokenizer"})");
  write("generation_config.json", R"({"eos_token_id":[3,2,700]})");
  const OwnedVocabulary vocabulary = read_tokenizer_folder(folder);
  EXPECT_EQ(vocabulary.bos_id, 1);
  EXPECT_EQ(vocabulary.eos_id, 4);
  EXPECT_TRUE(vocabulary.add_bos);
  EXPECT_EQ(vocabulary.end_ids, (Ids{3, 2}));
  EXPECT_TRUE(Tokenizer(vocabulary).is_end_of_generation(3));
  write("generation_config.json", "{");
  EXPECT_THROW(read_tokenizer_folder(folder), Error);
}

}  // namespace
}  // namespace quire
