// Hostile templates end with a sentence, whatever they try.
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/jinja/template.h"

namespace quire::jinja {
namespace {

std::string repeated(const std::string& text, size_t n) {
  std::string all;
  for (size_t i = 0; i < n; ++i) all += text;
  return all;
}

// Smaller than those of chats, so that the tests are quick; what they stop does not change.
Limits small_limits() {
  Limits limits;
  limits.steps = 1'000'000;
  limits.memory_bytes = 32 << 20;
  limits.output_bytes = 4 << 20;
  return limits;
}

void expect_refused(const std::string& source, const std::string& says,
                    const Limits& limits = small_limits()) {
  const std::string shown = source.substr(0, 100);
  try {
    (void)Template::parse(source).render({}, std::tm{}, limits);
    ADD_FAILURE() << shown << ": no error";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(says), std::string::npos) << shown << "\n" << message;
    EXPECT_LT(message.size(), 400u) << shown;
    EXPECT_EQ(message.find('\n'), std::string::npos) << shown;
    EXPECT_TRUE(message.starts_with("the chat template")) << message;
  }
}

TEST(JinjaLimits, Steps) {
  const std::string loops = repeated("{% for x in range(100000) %}", 5) + "x" + repeated("{% endfor %}", 5);
  expect_refused(loops, "steps");
  expect_refused("{% set ns = namespace(s='a') %}" + repeated("{% for x in range(90000) %}", 2) +
                     "{% set ns.s = ns.s.replace('a', 'b') %}" + repeated("{% endfor %}", 2),
                 "more than");
}

TEST(JinjaLimits, Memory) {
  expect_refused("{{ 'x' * 1000000000000 }}", "memory");
  expect_refused("{{ [1, 2] * 9000000000000000000 }}", "memory");
  expect_refused("{{ 'x'.center(9000000000000000000) }}", "memory");
  expect_refused("{{ '1'.zfill(9000000000000000000) }}", "memory");
  expect_refused("{{ 'x'.ljust(9000000000000000000) }}", "memory");
  expect_refused("{{ 'x'|center(9000000000000000000) }}", "memory");
  expect_refused("{{ 'x'|indent(9000000000000000000) }}", "memory");
  expect_refused(
      "{% set ns = namespace(s='abcdefgh') %}{% for x in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor "
      "%}",
      "memory");
  expect_refused(
      "{% set ns = namespace(s='ab') %}{% for x in range(60) %}{% set ns.s = ns.s.replace('a', ns.s) %}{% "
      "endfor %}",
      "");
  expect_refused(
      "{% set ns = namespace(s=['ab']) %}{% for x in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ "
      "ns.s }}",
      "");
  expect_refused(
      "{% set ns = namespace(s=['ab']) %}{% for x in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ "
      "ns.s|tojson }}",
      "");
  expect_refused(
      "{% set ns = namespace(s=['ab']) %}{% for x in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ "
      "ns.s == [ns.s[0], [ns.s[0][0], ns.s[0][1]]] }}",
      "");
}

// Each byte of these would become a text or a place, many times its size.
TEST(JinjaLimits, MemoryOfPieces) {
  Limits limits = small_limits();
  limits.memory_bytes = 4 << 20;
  const std::string letters = "{% set s = 'a' * 40000 %}";
  for (const char* cut : {"s.split('a')", "s.rsplit('a')", "s.split('a', 39000)", "('a ' * 40000).split()",
                          "('a ' * 40000).rsplit()", "('\\n' * 40000).splitlines()", "('\\n' * 40000)|indent",
                          "[1]|map(attribute='.' * 40000)"}) {
    expect_refused(letters + "{{ (" + cut + ")|length }}", "memory", limits);
  }
  expect_refused("{{ ('a' * 600000)[::2] }}", "memory", limits);
  // Runs of two origins.
  expect_refused("{{ ('a' * 40000).replace('a', ('a' ~ 1) * 4) }}", "memory", limits);
  expect_refused("{{ ('a' ~ 1) * 130000 }}", "memory", limits);
  expect_refused("{{ ('a&' * 130000)|escape }}", "memory", limits);
}

TEST(JinjaLimits, Output) {
  expect_refused("{% set s = 'x' * 1000000 %}{% for x in range(1000) %}{{ s }}{% endfor %}", "prints more");
}

TEST(JinjaLimits, Depth) {
  const std::string deeper = "deeper";
  expect_refused("{{ " + repeated("(", 50000) + "1" + repeated(")", 50000) + " }}", deeper);
  expect_refused("{{ " + repeated("[", 50000) + repeated("]", 50000) + " }}", deeper);
  expect_refused("{{ " + repeated("-", 100000) + "1 }}", deeper);
  expect_refused("{{ " + repeated("not ", 100000) + "1 }}", deeper);
  expect_refused("{{ " + repeated("1 if 1 else ", 50000) + "1 }}", deeper);
  expect_refused("{{ 1" + repeated("+1", 100000) + " }}", "levels");
  expect_refused("{{ x" + repeated(".y", 100000) + " }}", "levels");
  expect_refused("{{ x" + repeated("|string", 100000) + " }}", "levels");
  expect_refused("{{ x" + repeated("()", 100000) + " }}", "levels");
  expect_refused(repeated("{% if 1 %}", 50000), deeper);
  expect_refused("{% set " + repeated("(", 50000) + "a" + repeated(")", 50000) + " = 1 %}", deeper);
  expect_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", deeper);
  expect_refused("{% macro m() %}{% call m() %}{{ caller }}{% endcall %}{% endmacro %}{{ m() }}", deeper);
  expect_refused(
      "{% macro a() %}{{ caller() }}{% endmacro %}{% macro b(f) %}{% call a() %}{{ f(f) }}{% endcall %}{% "
      "endmacro %}{{ b(b) }}",
      deeper);
  const std::string nest =
      "{% set ns = namespace(v=[]) %}{% for x in range(1000) %}{% set ns.v = [ns.v] %}{% endfor %}";
  expect_refused(nest + "{{ ns.v }}", deeper);
  expect_refused(nest + "{{ ns.v|tojson }}", deeper);
  expect_refused(nest +
                     "{{ ns.v == [ns.v[0]] }}{% set w = namespace(v=[]) %}{% for x in range(1000) %}{% set "
                     "w.v = [w.v] %}{% endfor %}{{ w.v == ns.v }}",
                 deeper);
  expect_refused("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", deeper);
  expect_refused("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me }}", deeper);
}

// Filters that apply filters: map('map', 'map', ...), and tests at the end of them.
TEST(JinjaLimits, FiltersThatApplyFilters) {
  const auto maps = [](size_t n, const std::string& last) {
    return "{% set ns = namespace(x=[1]) %}{% for i in range(" + std::to_string(n) +
           ") %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|map(*(['map'] * " + std::to_string(n - 1) + " + " +
           last + "))|list|length }}";
  };
  expect_refused(maps(1000, "[]"), "deeper");
  expect_refused(maps(1000, "['select', 'odd']"), "deeper");
  expect_refused(maps(12000, "[]"), "steps");
  const Template few = Template::parse(maps(20, "['select', 'odd']"));
  EXPECT_EQ(few.render({}).bytes(), "1");
}

// What a search costs where texts nearly match is the product of their sizes.
TEST(JinjaLimits, Searches) {
  const std::string texts = "{% set s = 'a' * 400000 %}{% set near = 'a' * 20000 ~ 'b' %}";
  for (const char* search :
       {"near in s", "s.find(near)", "s.rfind(near)", "s.count(near)", "s.split(near)", "s.rsplit(near)",
        "s.partition(near)", "s.rpartition(near)", "s.replace(near, '')", "s|replace(near, '')",
        "s.startswith((near,) * 10000)", "s.endswith((near,) * 10000)"}) {
    expect_refused(texts + "{{ " + search + " }}", "steps");
  }
  expect_refused(
      "{% set k = 'a' * 200000 %}{% set d = {k ~ 1: 1, k ~ 2: 2} %}{% set other = k ~ 3 %}"
      "{% for i in range(1000) %}{{ d[other] }}{% endfor %}",
      "steps");
}

TEST(JinjaLimits, SearchesFindWhatIsThere) {
  const Template searches = Template::parse(
      "{% set long = 'a' * 200 %}{% set s = long ~ 'b' ~ long ~ 'c' %}"
      "{{ s.find(long ~ 'c') }} {{ s.rfind(long ~ 'b') }} {{ s.rfind(long) }} {{ s.find('') }} "
      "{{ s.rfind('') }} {{ s.rfind('c') }} {{ s.count(long) }} {{ s.find('d') }} {{ s.rfind('ca') }} "
      "{{ 'b'.rfind(s) }} {{ s.rsplit(long)|map('length')|list }} {{ 'aXbX'.split('X') }} {{ '' in s }}");
  EXPECT_EQ(searches.render({}).bytes(), "201 0 201 0 402 401 2 -1 -1 -1 [0, 1, 1] ['a', 'b', ''] True");
}

// The sets of these would be looked through for each character, if they were not made once.
TEST(JinjaLimits, StripsWithLargeSets) {
  const Template strips = Template::parse(
      "{% set s = 'a' * 200000 ~ 'ä' %}{% set others = 'b' * 100000 %}{% set all = others ~ 'äöa' %}"
      "{{ s.strip(all)|length }} {{ s.lstrip(all)|length }} {{ s.rstrip(all)|length }} "
      "{{ s|trim(all)|length }} {{ s.strip(others)|length }} {{ s.strip('ä')|length }}");
  EXPECT_EQ(strips.render({}).bytes(), "0 0 0 0 200001 200000");
}

TEST(JinjaLimits, Size) { expect_refused(std::string(2000000, ' '), "more than"); }

TEST(JinjaLimits, Numbers) {
  expect_refused("{{ 9223372036854775807 + 1 }}", "64 bits");
  expect_refused("{{ -9223372036854775807 - 2 }}", "64 bits");
  expect_refused("{{ 4294967296 * 4294967296 }}", "64 bits");
  expect_refused("{{ 10 ** 30 }}", "64 bits");
  expect_refused("{{ 99999999999999999999 }}", "64 bits");
  expect_refused("{{ 1e300|int }}", "64 bits");
  expect_refused("{{ (-9223372036854775807 - 1) // -1 }}", "64 bits");
  expect_refused("{{ -(-9223372036854775807 - 1) }}", "64 bits");
  expect_refused("{{ (-9223372036854775807 - 1)|abs }}", "64 bits");
  expect_refused("{{ '%d' % 1e300 }}", "64 bits");
}

TEST(JinjaLimits, SlicesAtTheEndsOfNumbers) {
  const Template ends = Template::parse(
      "{{ 'abc'[:9223372036854775807:9223372036854775807] }}{{ [1, 2][-9223372036854775807:] }}"
      "{{ 'abc'[::-9223372036854775807] }}{{ range(9223372036854775806, 9223372036854775807)|length }}"
      "{{ (-9223372036854775807 - 1) % -1 }}");
  EXPECT_EQ(ends.render({}).bytes(), "a[1, 2]c10");
}

// A loop whose macro outlives it, a generator that feeds itself.
TEST(JinjaLimits, ThingsThatOutliveTheirLoop) {
  const Template late = Template::parse(
      "{% set ns = namespace() %}{% for x in [1, 2] %}{% set ns.l = loop %}{% endfor %}{{ ns.l.length }}{{ "
      "ns.l.index }}"
      "{{ ns.l.previtem is defined }}{{ ns.l.cycle(1, 2) }}");
  EXPECT_EQ(late.render({}).bytes(), "01False1");
}

TEST(JinjaLimits, RealTemplatesStayFarBelow) {
  DataList messages;
  for (int i = 0; i < 2000; ++i) {
    DataObject message;
    message.emplace_back("role", i % 2 == 0 ? "user" : "assistant");
    message.emplace_back("content", std::string(500, 'x').append("</think> and more"));
    messages.push_back(std::move(message));
  }
  DataObject values;
  values.emplace_back("messages", std::move(messages));
  const Template reasoning = Template::parse(
      "{% set ns = namespace(last=0) %}{% for m in messages[::-1] %}{% if m.role == 'user' %}{% set ns.last "
      "= loop.index0 %}"
      "{% endif %}{% endfor %}{% for m in messages %}{% set c = "
      "m.content.split('</think>')[-1].lstrip('\\n') %}"
      "{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}");
  EXPECT_GT(reasoning.render(values).size(), 2000u * 20);
}

}  // namespace
}  // namespace quire::jinja
