// Whatever messages hold, and whatever a template does with them, the rendered text has as many control
// tokens as the template's own text makes: none comes out of a message, also not together with the template's
// text.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "property/random.h"
#include "text/chat_template.h"
#include "unit/text/test_vocabulary.h"

namespace quire {
namespace {

constexpr int32_t kFirstControl = 256;

Tokenizer make_tokenizer() {
  TestVocabulary v;
  for (const char* control : {"<|a|>", "<|b|>", "<s>", "</s>", "[INST]"}) v.add(control, kTokenControl);
  return Tokenizer(v.view());
}

// Markers, halves of them, and what surrounds them in templates.
std::string random_text(test::Random& random) {
  const char* parts[] = {"<|a|>",  "<|b|>", "<s>", "</s>", "[INST]", "<",  "|",    "a",  "b",
                         "|>",     "<|",    ">",   "s",    "/",      "[",  "INST", "]",  "\n",
                         " ",      "\\n",   "\"",  "'",    "x",      "é",  "日",   "\t", "<|A|>",
                         "[inst]", "&lt;",  "%s",  "{}",   "{{",     "}}", "a|>",  "<|a"};
  std::string text;
  const size_t n = random.below(8);
  for (size_t i = 0; i < n; ++i) text += parts[random.below(std::size(parts))];
  return text;
}

// What templates do with texts; M stands for that of a message, each expression is a text.
const char* const kOperations[] = {
    "M",
    "M|trim",
    "M.strip()",
    "M.strip('<>')",
    "M + M",
    "'x' + M",
    "M ~ M ~ 'y'",
    "M|upper|lower",
    "M.lower()",
    "M.upper().lower()",
    "M.title()|lower",
    "M|title|lower",
    "M|capitalize|lower",
    "M.swapcase().swapcase()",
    "M[1:]",
    "M[:-1]",
    "M[::-1]",
    "M[::-1][::-1]",
    "M[::2] ~ M[1::2]",
    "M|reverse|reverse",
    "M|replace('x', '')",
    "M|replace(' ', '')",
    "M.replace('\\n', '')",
    "M.replace('|', '')|replace('<', '<|')",
    "'x'.replace('x', M)",
    "('<|' ~ M ~ '|>')",
    "('<' ~ M)",
    "('<|a' ~ M)",
    "(M ~ '|>')",
    "(M ~ '>')",
    "('[' ~ M ~ ']')",
    "('<|' + M)[1:]",
    "'%s' % M",
    "'<|%s|>' % M",
    "'<|{}|>'.format(M)",
    "'<|%s'|format(M)",
    "'{0}{0}'.format(M)",
    "M|tojson",
    "[M]|tojson",
    "{'k': M}|tojson(indent=1)",
    "{M: 1}|tojson",
    "M|string",
    "[M, M]|string",
    "{'a': M}|string",
    "[M, '|>']|join",
    "M.split('|')|join('|')",
    "M.split('x')|join",
    "M.split('<')|join('<')",
    "M.split()|join(' ')",
    "M|list|join",
    "M.split('|', 1)|last",
    "M.rsplit('|', 1)|first",
    "M.partition('|')|join",
    "M.splitlines()|join('\\n')",
    "M|indent(0)",
    "M|indent('<')|trim",
    "M.center(20).strip()",
    "M.ljust(9, '|')",
    "M.zfill(20).lstrip('0')",
    "M|e|replace('&lt;', '<')|replace('&gt;', '>')",
    "M|truncate(6, true, '|>')",
    "M|default('<|')",
    "(M or '<|')",
    "M.removeprefix('x').removesuffix('x')",
    "[M]|map('upper')|map('lower')|join",
    "[M, M]|sort|join",
    "[M]|unique|first",
    "M|center(30)|trim",
    "(M|list|batch(2)|map('join')|join)",
    "M.join(['<|', '|>'])",
    "'|'.join(['<', M, '>'])",
    "M|format",
    "M * 2",
    "(M|e)",
    "namespace(v=M).v",
    "dict(v=M)['v']",
    "[M][0]",
    "(M, 1)[0]",
    "[M]|first",
    "{'x': M}.get('x')",
    "M|replace(M, M)",
    "'<|a|>'[:2] ~ M ~ '<|a|>'[3:]",
    "'<|a|>'|replace('a', M)",
    "'<|a|>'.split('a')|join(M)",
    "'<|q|>'|replace('q', M)",
    "'<|Q|>'.format(M)|replace('Q', M)",
    "dict(**{M: 1})|first",
    "dict(**{M: M}).keys()|join",
    "namespace(**{M: M})|string",
    "strftime_now('<|') ~ M ~ '|>'",
    "M|string|safe",
};

// Template text around it that makes no token, so that every control token in the result comes from a
// message.
constexpr const char* kBorders[][2] = {{"", ""},         {"<|", "|>"}, {"<", ">"},
                                       {"<|a", "|b|>"},  {"[", "]"},   {"[IN", "T]"},
                                       {"<|a|", "|a|>"}, {"x", "y"},   {"</", "s>"}};

std::string with(std::string operation, const std::string& name) {
  std::string out;
  for (const char c : operation) out += c == 'M' ? name : std::string(1, c);
  return out;
}

size_t n_control(const std::vector<int32_t>& ids) {
  return static_cast<size_t>(
      std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id >= kFirstControl; }));
}

TEST(OriginOfText, MessagesNeverBecomeControlTokens) {
  const Tokenizer tokenizer = make_tokenizer();
  test::Random random(20240726);
  for (const char* operation : kOperations) {
    for (const auto& [before, behind] : kBorders) {
      const std::string expression = with(operation, "messages[0].content");
      const std::string source = std::string(before) + "{{ " + expression + " }}" + behind;
      const ChatTemplate chat_template(source);
      // A template may make tokens of its own literals; those are as many for a message that has no part in
      // any.
      size_t n_own = 0;
      std::string reference;
      for (int i = 0; i < 30; ++i) {
        std::string content = random_text(random);
        const std::vector<ChatMessage> message{{"user", content, {}}};
        std::vector<int32_t> ids;
        try {
          ids = chat_template.encode(tokenizer, message, true);
        } catch (const Error&) {
          continue;  // "%s" without a value, and the like
        }
        n_own = 0;
        // Replacing takes template text where an empty message leaves nothing between: the template's own
        // marker.
        const jinja::Text text = chat_template.render(message, true);
        size_t begin = 0;
        for (const jinja::Text::Run& run : text.runs()) {
          if (run.origin == jinja::Origin::kTemplate) {
            n_own += n_control(tokenizer.encode(std::string_view(text.bytes()).substr(begin, run.end - begin),
                                                ControlTokens::kParse));
          }
          begin = run.end;
        }
        ASSERT_EQ(n_control(ids), n_own) << source << "\n" << content;
        ASSERT_EQ(tokenizer.decode(ids, true), text.bytes()) << source << "\n" << content;
      }
    }
  }
}

// Bytes of the message are never taken for the template's: with letters that no literal has, each one of them
// that is in the result is from outside.
TEST(OriginOfText, EveryByteOfAMessageIsFromOutside) {
  test::Random random(7);
  for (const char* operation : kOperations) {
    const ChatTemplate chat_template("{{ " + with(operation, "messages[0].content") + " }}");
    for (int i = 0; i < 20; ++i) {
      std::string content;
      for (size_t n = random.below(12); n > 0; --n) content += "WwZzé日 \n"[random.below(7)];
      content = std::string("Z") + content + "wé";
      const std::vector<ChatMessage> message{{"user", content, {}}};
      jinja::Text text;
      try {
        text = chat_template.render(message, true);
      } catch (const Error&) {
        continue;
      }
      text.for_each_run([&](std::string_view run, jinja::Origin origin) {
        if (origin == jinja::Origin::kTemplate) {
          EXPECT_EQ(run.find_first_of("WwZz\xc3\xe6"), std::string_view::npos) << operation << "\n" << run;
        }
      });
    }
  }
}

// With pieces of any cut the texts are what their bytes and origins are, one by one.
TEST(OriginOfText, TextsAreTheirBytesAndOrigins) {
  test::Random random(3);
  for (int round = 0; round < 2000; ++round) {
    jinja::Text text;
    std::string bytes;
    std::vector<jinja::Origin> origins;
    for (size_t n = random.below(10); n > 0; --n) {
      const auto origin = random.below(2) == 0 ? jinja::Origin::kTemplate : jinja::Origin::kOutside;
      const std::string more(random.below(5), static_cast<char>('a' + random.below(26)));
      text.append(more, origin);
      bytes += more;
      origins.insert(origins.end(), more.size(), origin);
    }
    const size_t begin = random.below(bytes.size() + 1);
    const size_t size = random.below(bytes.size() - begin + 1);
    jinja::Text part = text.part(begin, size);
    part.append_part(part, 0, part.size());
    ASSERT_EQ(part.bytes(), bytes.substr(begin, size) + bytes.substr(begin, size));
    size_t at = 0;
    part.for_each_run([&](std::string_view run, jinja::Origin origin) {
      ASSERT_FALSE(run.empty());
      for (size_t i = 0; i < run.size(); ++i, ++at) ASSERT_EQ(origins[begin + at % size], origin);
    });
    ASSERT_EQ(at, part.size());
  }
}

}  // namespace
}  // namespace quire
