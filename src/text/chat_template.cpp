#include "text/chat_template.h"

#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Between control characters, which no template takes away as white space and no user is likely to type.
constexpr std::string_view kUnknownAnswer =
    "\x02"
    "answer"
    "\x03";

jinja::Data message_data(const ChatMessage& message) {
  jinja::DataObject object;
  object.emplace_back("role", message.role);
  object.emplace_back("content", message.content);
  for (const auto& [name, value] : message.more) {
    if (name == "content") {
      object[1].second = value;
    } else {
      object.emplace_back(name, value);
    }
  }
  return object;
}

std::vector<TextPart> template_parts(const jinja::Text& text) {
  std::vector<TextPart> parts;
  size_t begin = 0;
  for (const jinja::Text::Run& run : text.runs()) {
    if (run.origin == jinja::Origin::kTemplate) parts.push_back({begin, run.end});
    begin = run.end;
  }
  return parts;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view jinja_text, std::string bos_text, std::string eos_text)
    : template_(jinja::Template::parse(jinja_text)),
      bos_text_(std::move(bos_text)),
      eos_text_(std::move(eos_text)) {}

ChatTemplate ChatTemplate::chatml() { return ChatTemplate(kChatMl); }

jinja::Text ChatTemplate::render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                                 const jinja::DataObject& variables) const {
  jinja::DataList list;
  for (const ChatMessage& message : messages) list.push_back(message_data(message));
  jinja::DataObject values;
  values.emplace_back("messages", std::move(list));
  values.emplace_back("add_generation_prompt", add_generation_prompt);
  values.emplace_back("bos_token", jinja::Text(bos_text_, jinja::Origin::kTemplate));
  values.emplace_back("eos_token", jinja::Text(eos_text_, jinja::Origin::kTemplate));
  // Templates ask whether these are none, as transformers always passes them.
  values.emplace_back("tools", nullptr);
  values.emplace_back("documents", nullptr);
  values.insert(values.end(), variables.begin(), variables.end());
  return template_.render(values);
}

std::vector<int32_t> ChatTemplate::encode(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                          bool add_generation_prompt) const {
  return encode_rendered(tokenizer, render(messages, add_generation_prompt));
}

std::vector<int32_t> ChatTemplate::encode_behind(const Tokenizer& tokenizer,
                                                 std::span<const ChatMessage> messages) const {
  std::vector<ChatMessage> all = unknown_turns();
  all.insert(all.end(), messages.begin(), messages.end());
  const jinja::Text text = text_behind_unknown_turns(render(all, true));
  // Whatever the answer ended with, it was text: no space is put before what follows.
  constexpr int32_t kText = -1;
  return encode_rendered_behind(tokenizer, text, {&kText, 1});
}

std::vector<int32_t> encode_rendered(const Tokenizer& tokenizer, const jinja::Text& text) {
  std::vector<int32_t> ids;
  tokenizer.encode_append(text.bytes(), template_parts(text), ids);
  if (tokenizer.add_bos() && (ids.empty() || ids.front() != tokenizer.bos_id())) {
    ids.insert(ids.begin(), *tokenizer.bos_id());
  }
  return ids;
}

std::vector<int32_t> encode_rendered_behind(const Tokenizer& tokenizer, const jinja::Text& text,
                                            std::span<const int32_t> before) {
  // The last one tells what kind of place the text has.
  std::vector<int32_t> ids(before.end() - (before.empty() ? 0 : 1), before.end());
  const auto n_before = static_cast<ptrdiff_t>(ids.size());
  tokenizer.encode_append(text.bytes(), template_parts(text), ids);
  ids.erase(ids.begin(), ids.begin() + n_before);
  return ids;
}

std::vector<ChatMessage> unknown_turns() {
  return {{"user", "?", {}}, {"assistant", std::string(kUnknownAnswer), {}}};
}

jinja::Text text_behind_unknown_turns(const jinja::Text& text) {
  const size_t at = text.bytes().find(kUnknownAnswer);
  if (at == std::string::npos) {
    throw Error(
        "the chat template does not print an answer that others follow, so a conversation cannot go on "
        "behind one");
  }
  const size_t end = at + kUnknownAnswer.size();
  return text.part(end, text.size() - end);
}

}  // namespace quire
