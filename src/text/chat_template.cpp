#include "text/chat_template.h"

#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::string_view kSmolLm2System =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

// tokenizer.chat_template of SmolLM2-Instruct, word for word.
constexpr std::string_view kSmolLm2Template =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}";

// The same without a default system message: ChatML as it was first published.
constexpr std::string_view kPlainTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}";

// Files write a newline inside a quoted string either as such or as backslash and n; Jinja reads both
// as a newline.
std::string unescape_newlines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text.substr(i, 2) == "\\n";
    out += escaped ? '\n' : text[i];
    if (escaped) ++i;
  }
  return out;
}

int32_t marker(const Tokenizer& tokenizer, std::string_view text) {
  const std::optional<int32_t> id = tokenizer.find_control(text);
  if (id) return *id;
  throw Error("the chat template needs the control token '" + std::string(text) +
              "', which the vocabulary lacks");
}

// Role, newline and content are one piece of text, as when a rendered prompt is split at its markers: a
// content that starts with white space merges with the newline.
void append_message(const Tokenizer& tokenizer, std::string_view role, std::string_view content,
                    std::vector<int32_t>& ids) {
  ids.push_back(marker(tokenizer, kStart));
  tokenizer.encode_append(std::string(role).append("\n").append(content), ControlTokens::kAsText, ids);
  ids.push_back(marker(tokenizer, kEnd));
  tokenizer.encode_append("\n", ControlTokens::kAsText, ids);
}

}  // namespace

ChatTemplate::ChatTemplate() : ChatTemplate(std::string(kSmolLm2System)) {}

ChatTemplate::ChatTemplate(std::string default_system_message)
    : default_system_message_(std::move(default_system_message)) {}

ChatTemplate ChatTemplate::recognise(std::string_view jinja_text) {
  const std::string text = unescape_newlines(jinja_text);
  if (text == kSmolLm2Template) return ChatTemplate();
  if (text == kPlainTemplate) return ChatTemplate(std::string());
  throw Error("the model's chat template is not one that is known; known are SmolLM2's and plain ChatML");
}

std::vector<int32_t> ChatTemplate::encode(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                          bool add_generation_prompt) const {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < messages.size(); ++i) append_turn(tokenizer, messages[i], i == 0, ids);
  if (add_generation_prompt) append_generation_prompt(tokenizer, ids);
  return ids;
}

std::vector<int32_t> ChatTemplate::encode_turn(const Tokenizer& tokenizer, const ChatMessage& message,
                                               bool add_generation_prompt, bool first) const {
  std::vector<int32_t> ids;
  append_turn(tokenizer, message, first, ids);
  if (add_generation_prompt) append_generation_prompt(tokenizer, ids);
  return ids;
}

std::vector<int32_t> ChatTemplate::encode_answer_end(const Tokenizer& tokenizer,
                                                     bool end_marker_in_cache) const {
  std::vector<int32_t> ids;
  if (!end_marker_in_cache) ids.push_back(marker(tokenizer, kEnd));
  tokenizer.encode_append("\n", ControlTokens::kAsText, ids);
  return ids;
}

void ChatTemplate::append_turn(const Tokenizer& tokenizer, const ChatMessage& message, bool first,
                               std::vector<int32_t>& ids) const {
  if (first && message.role != "system" && !default_system_message_.empty()) {
    append_message(tokenizer, "system", default_system_message_, ids);
  }
  append_message(tokenizer, message.role, message.content, ids);
}

void ChatTemplate::append_generation_prompt(const Tokenizer& tokenizer, std::vector<int32_t>& ids) const {
  ids.push_back(marker(tokenizer, kStart));
  tokenizer.encode_append("assistant\n", ControlTokens::kAsText, ids);
}

}  // namespace quire
