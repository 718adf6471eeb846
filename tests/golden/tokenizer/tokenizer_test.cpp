// The real vocabulary of SmolLM2 against what PyPI `tokenizers` and `jinja2` say (freeze.py). The vocabulary
// is read from the model file, which is not part of the repository: without it these cases are skipped.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "text/chat_template.h"
#include "weights/gguf.h"

namespace quire {
namespace {

using Ids = std::vector<int32_t>;

const std::string kModel = QUIRE_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
const std::string kData = QUIRE_SOURCE_DIR "/tests/golden/tokenizer/data/";

Vocabulary read_vocabulary(const GgufFile& file, std::string pre_tokenizer) {
  Vocabulary vocabulary;
  vocabulary.model = file.get_string("tokenizer.ggml.model");
  vocabulary.pre_tokenizer = std::move(pre_tokenizer);
  vocabulary.tokens = file.get_string_array("tokenizer.ggml.tokens");
  vocabulary.merges = file.get_string_array("tokenizer.ggml.merges");
  for (const int64_t type : file.get_int_array("tokenizer.ggml.token_type")) {
    vocabulary.token_types.push_back(static_cast<int32_t>(type));
  }
  vocabulary.bos_id = static_cast<int32_t>(file.get_uint("tokenizer.ggml.bos_token_id"));
  vocabulary.eos_id = static_cast<int32_t>(file.get_uint("tokenizer.ggml.eos_token_id"));
  vocabulary.add_bos = file.get_bool("tokenizer.ggml.add_bos_token");
  return vocabulary;
}

class GoldenTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModel)) GTEST_SKIP() << kModel << " is not there";
    file_ = std::make_unique<GgufFile>(GgufFile::open(kModel));
  }

  Tokenizer tokenizer(const char* pre_tokenizer = "smollm") const {
    return Tokenizer(read_vocabulary(*file_, pre_tokenizer));
  }

  std::unique_ptr<GgufFile> file_;
};

std::string unhex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1]));
  }
  return bytes;
}

Ids read_ids(const std::string& line) {
  std::istringstream in(line);
  return Ids(std::istream_iterator<int32_t>(in), {});
}

struct Frozen {
  std::string text;
  std::vector<Ids> ids;  // smollm, gpt-2, llama-bpe, qwen2 as text; smollm with control tokens parsed
};

std::vector<Frozen> read_frozen() {
  std::ifstream in(kData + "encode.txt");
  std::vector<Frozen> all;
  for (std::string line; std::getline(in, line);) {
    Frozen frozen{unhex(line), {}};
    for (int i = 0; i < 5 && std::getline(in, line); ++i) {
      frozen.ids.push_back(line == "=" ? frozen.ids.back() : read_ids(line));
    }
    all.push_back(std::move(frozen));
  }
  return all;
}

TEST_F(GoldenTokenizer, IdsEqualThoseOfHuggingFace) {
  const std::vector<Frozen> all = read_frozen();
  ASSERT_GT(all.size(), 250u);
  const char* names[] = {"smollm", "gpt-2", "llama-bpe", "qwen2", "smollm"};
  for (size_t i = 0; i < 5; ++i) {
    const Tokenizer t = tokenizer(names[i]);
    for (const Frozen& frozen : all) {
      const ControlTokens mode = i == 4 ? ControlTokens::kParse : ControlTokens::kAsText;
      EXPECT_EQ(t.encode(frozen.text, mode), frozen.ids.at(i)) << names[i] << ": " << frozen.text;
    }
  }
}

// Whatever has a token comes back; the rest is what the vocabulary lacks.
TEST_F(GoldenTokenizer, RoundTripButForTheBytesTheModelLacks) {
  const Tokenizer t = tokenizer();
  const std::vector<uint8_t> missing = t.missing_bytes();
  EXPECT_EQ(missing, (std::vector<uint8_t>{0x04, 0x06, 0x13, 0x14, 0x16, 0x1d, 0xc0, 0xc1, 0xf1, 0xf2, 0xf5,
                                           0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff}));
  uint32_t state = 1;
  for (int round = 0; round < 400; ++round) {
    std::string bytes;
    for (int i = 0; i < 200; ++i) {
      state = state * 1664525 + 1013904223;
      const auto byte = static_cast<uint8_t>(state >> 24);
      if (std::find(missing.begin(), missing.end(), byte) == missing.end()) bytes += static_cast<char>(byte);
    }
    ASSERT_EQ(t.decode(t.encode(bytes, ControlTokens::kParse), true), bytes);
  }
  for (const Frozen& frozen : read_frozen()) {
    std::string kept;
    for (const char c : frozen.text) {
      if (std::find(missing.begin(), missing.end(), static_cast<uint8_t>(c)) == missing.end()) kept += c;
    }
    ASSERT_EQ(t.decode(t.encode(frozen.text, ControlTokens::kAsText)), kept);
  }
}

TEST_F(GoldenTokenizer, ControlTokensOfTheModel) {
  const Tokenizer t = tokenizer();
  EXPECT_EQ(t.size(), 49152);
  EXPECT_EQ(t.find_control("<|im_end|>"), 2);
  EXPECT_TRUE(t.is_end_of_generation(0));  // <|endoftext|>
  EXPECT_FALSE(t.is_end_of_generation(1));
  EXPECT_TRUE(t.is_end_of_generation(2));
  EXPECT_FALSE(t.add_bos());
}

TEST_F(GoldenTokenizer, AUsersMarkerIsText) {  // case U35
  const Tokenizer t = tokenizer();
  EXPECT_EQ(t.encode("<|im_end|>", ControlTokens::kAsText), (Ids{44, 108, 306, 79, 486, 108, 46}));
  const std::vector<ChatMessage> chat{{"user", "say <|im_end|> now"}};
  const Ids ids = ChatTemplate(file_->get_string("tokenizer.chat_template")).encode(t, chat, true);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 2);  // one each for system and user
}

TEST_F(GoldenTokenizer, ChatEqualsRenderedTemplate) {
  const Tokenizer t = tokenizer();
  const ChatTemplate chat_template(file_->get_string("tokenizer.chat_template"));
  std::ifstream in(kData + "chat.txt");
  int n_chats = 0;
  for (std::string word; in >> word; ++n_chats) {
    ASSERT_EQ(word, "chat");
    size_t n_messages = 0;
    int generate = 0;
    in >> n_messages >> generate;
    std::string line;
    std::getline(in, line);
    std::vector<ChatMessage> chat;
    for (size_t i = 0; i < n_messages; ++i) {
      std::getline(in, line);
      const size_t space = line.find(' ');
      chat.push_back({line.substr(0, space), unhex(std::string_view(line).substr(space + 1))});
    }
    std::getline(in, line);
    EXPECT_EQ(chat_template.encode(t, chat, generate == 1), read_ids(line)) << "conversation " << n_chats;
  }
  EXPECT_EQ(n_chats, 18);
}

// A quadratic step anywhere takes minutes here; the bound is loose enough for sanitizers on a busy machine.
TEST_F(GoldenTokenizer, AMegabyteOfAnythingTakesLinearTime) {
  const char* units[] = {"a",           " ", "7", "\n", "\t \n", "-", "<|im_", "'", "the", "\xF0\x9F\x98\x80",
                         "\xE6\xBC\xA2"};
  for (const char* pre_tokenizer : {"smollm", "llama-bpe"}) {
    const Tokenizer t = tokenizer(pre_tokenizer);
    for (const std::string unit : units) {
      std::string text;
      while (text.size() < 1000000) text += unit;
      const auto start = std::chrono::steady_clock::now();
      const Ids ids = t.encode(text, ControlTokens::kParse);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 20) << unit;
      EXPECT_EQ(t.decode(ids), text);
    }
  }
}

TEST_F(GoldenTokenizer, ManyThreadsEncodeAlike) {
  const Tokenizer t = tokenizer();
  const std::vector<Frozen> all = read_frozen();
  std::vector<int> n_wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < n_wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (const Frozen& f : all) n_wrong[i] += t.encode(f.text, ControlTokens::kAsText) != f.ids[0];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace quire
