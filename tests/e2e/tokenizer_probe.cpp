// Encodes and decodes many texts with one tokenizer, for tokenizers_test.py: tokenizer_probe PATH, where PATH
// is a GGUF file or a folder with a tokenizer.json. Each line of stdin is "encode MODE HEX" (MODE "parse" or
// "text") or "decode ID ..."; each gives one line: the ids, or the text in hex. Text is made as a session
// streams it, and must be what decoding at once gives.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/vocabulary_reader.h"
#include "text/tokenizer_json.h"
#include "text/utf8_stream.h"

namespace {

using quire::Tokenizer;

std::string unhex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1]));
  }
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) {
    hex += "0123456789abcdef"[static_cast<uint8_t>(c) >> 4];
    hex += "0123456789abcdef"[static_cast<uint8_t>(c) & 15];
  }
  return hex;
}

Tokenizer load(const std::string& path) {
  if (std::filesystem::is_directory(path)) return Tokenizer(quire::read_tokenizer_folder(path));
  const quire::GgufFile file = quire::GgufFile::open(path);
  return Tokenizer(quire::read_vocabulary(file));
}

std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  quire::Utf8Stream whole;
  std::string text = whole.push(tokenizer.decode(ids));
  text += whole.flush();
  quire::Utf8Stream stream;
  std::string streamed;
  bool begins = true;
  for (const int32_t id : ids) {
    if (tokenizer.is_control(id)) continue;
    streamed += stream.push(begins ? tokenizer.first_token_bytes(id) : tokenizer.token_bytes(id));
    begins = false;
  }
  streamed += stream.flush();
  if (streamed != text) throw quire::Error("streamed text differs from text decoded at once");
  return text;
}

void answer(const Tokenizer& tokenizer, const std::string& line) {
  std::istringstream in(line);
  std::string verb;
  in >> verb;
  if (verb == "decode") {
    const std::vector<int32_t> ids(std::istream_iterator<int32_t>(in), {});
    std::cout << to_hex(decode(tokenizer, ids)) << '\n';
    return;
  }
  std::string mode, hex;
  in >> mode >> hex;
  const auto control = mode == "parse" ? quire::ControlTokens::kParse : quire::ControlTokens::kAsText;
  for (const int32_t id : tokenizer.encode(unhex(hex), control)) std::cout << id << ' ';
  std::cout << '\n';
}

}  // namespace

int main(int n_arguments, char** arguments) {
  if (n_arguments != 2) return 2;
  try {
    const Tokenizer tokenizer = load(arguments[1]);
    std::cout << tokenizer.size() << ' ' << tokenizer.bos_id().value_or(-1) << ' '
              << tokenizer.eos_id().value_or(-1) << ' ' << tokenizer.add_bos() << ' ' << tokenizer.add_eos()
              << '\n';
    for (std::string line; std::getline(std::cin, line);) answer(tokenizer, line);
  } catch (const quire::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
