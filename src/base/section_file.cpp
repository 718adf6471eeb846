#include "base/section_file.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "values lie in the file as they lie in memory");

constexpr size_t kMagicBytes = 8;
constexpr size_t kNameBytes = 16;
constexpr uint32_t kMandatory = 1;

struct FileHeader {
  char magic[kMagicBytes];
  uint32_t version;
  uint32_t zero;
  uint64_t n_bytes;
};
static_assert(sizeof(FileHeader) == 24);

struct SectionHeader {
  char name[kNameBytes];
  uint32_t flags;
  uint32_t zero;
  uint64_t n_bytes;
};
static_assert(sizeof(SectionHeader) == 32);

constexpr size_t kChecksumBytes = sizeof(uint64_t);
// Many more than any file has, so that looking for one by one stays cheap whatever a file holds.
constexpr size_t kMostSections = 256;
// Bytes that are hashed before their memory may go back.
constexpr size_t kHashPiece = size_t{4} << 20;

uint64_t padding_of(uint64_t n_bytes) { return (8 - n_bytes % 8) % 8; }

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// The name in a section's header; empty where it is none.
std::string_view name_of(const char* field) {
  const std::string_view all(field, kNameBytes);
  const std::string_view name = all.substr(0, std::min(all.find('\0'), kNameBytes));
  const bool zeros = std::all_of(all.begin() + name.size(), all.end(), [](char c) { return c == '\0'; });
  return zeros && std::all_of(name.begin(), name.end(), is_name_character) ? name : std::string_view();
}

void write_section(const Section& section, const ByteSink& sink) {
  QUIRE_CHECK(!section.name.empty() && section.name.size() <= kNameBytes);
  SectionHeader header{};
  std::copy(section.name.begin(), section.name.end(), header.name);
  header.flags = section.mandatory ? kMandatory : 0;
  header.n_bytes = section.n_bytes;
  sink(bytes_of(header));
  uint64_t n_written = 0;
  section.write([&](std::span<const std::byte> bytes) {
    n_written += bytes.size();
    sink(bytes);
  });
  QUIRE_CHECK(n_written == section.n_bytes);
  constexpr uint64_t kZero = 0;
  sink(bytes_of(kZero).first(padding_of(section.n_bytes)));
}

}  // namespace

struct Checksum::State {
  // The library's own allocation, which is aligned as its vector code needs.
  XXH3_state_t* xxh = XXH3_createState();

  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(xxh); }
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;
void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}
uint64_t Checksum::value() const { return XXH3_64bits_digest(state_->xxh); }

uint64_t checksum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Section small_section(std::string name, std::vector<std::byte> bytes, bool mandatory) {
  const uint64_t n_bytes = bytes.size();
  return {std::move(name), mandatory, n_bytes,
          [kept = std::move(bytes)](const ByteSink& sink) { sink(kept); }};
}

void write_sections(const SectionFileKind& kind, std::span<const Section> sections, const ByteSink& sink) {
  QUIRE_CHECK(kind.magic.size() == kMagicBytes);
  FileHeader header{};
  std::copy(kind.magic.begin(), kind.magic.end(), header.magic);
  header.version = kind.version;
  header.n_bytes = sizeof header + kChecksumBytes;
  for (const Section& section : sections) {
    header.n_bytes += sizeof(SectionHeader) + section.n_bytes + padding_of(section.n_bytes);
  }
  Checksum checksum;
  const ByteSink hashed = [&](std::span<const std::byte> bytes) {
    checksum.add(bytes);
    sink(bytes);
  };
  hashed(bytes_of(header));
  for (const Section& section : sections) write_section(section, hashed);
  const uint64_t value = checksum.value();
  sink(bytes_of(value));
}

SectionFile::SectionFile(std::span<const std::byte> bytes, std::string name, const SectionFileKind& kind,
                         const ByteSink& done)
    : name_(std::move(name)), noun_(kind.noun) {
  check_whole(bytes, kind, done);
  read_sections(bytes.subspan(sizeof(FileHeader), bytes.size() - sizeof(FileHeader) - kChecksumBytes));
}

void SectionFile::fail(const std::string& what) const { throw Error(name_ + ": " + what); }

void SectionFile::fail_section(std::string_view section, const std::string& what) const {
  fail("the " + noun_ + " is damaged: section '" + std::string(section) + "': " + what);
}

// Another kind of file is told from a damaged one by the magic, a file of another version by its number, and
// only then the rest is looked at.
void SectionFile::check_whole(std::span<const std::byte> bytes, const SectionFileKind& kind,
                              const ByteSink& done) const {
  if (bytes.empty()) fail("the file is empty, and no " + noun_);
  if (bytes.size() < kMagicBytes || std::memcmp(bytes.data(), kind.magic.data(), kMagicBytes) != 0) {
    fail("this is no " + noun_);
  }
  if (bytes.size() < sizeof(FileHeader) + kChecksumBytes) fail("the " + noun_ + " is cut short");
  const auto header = load<FileHeader>(bytes);
  if (header.version != kind.version) {
    fail("a " + noun_ + " of version " + std::to_string(header.version) + " is not known; this Quire reads " +
         std::to_string(kind.version));
  }
  if (header.n_bytes != bytes.size()) {
    const char* trouble = header.n_bytes > bytes.size() ? "cut short" : "followed by something else";
    fail("the " + noun_ + " is " + trouble + " or damaged: it should have " + std::to_string(header.n_bytes) +
         " bytes and has " + std::to_string(bytes.size()));
  }
  const auto body = bytes.first(bytes.size() - kChecksumBytes);
  Checksum checksum;
  for (size_t at = 0; at < body.size(); at += kHashPiece) {
    const auto piece = body.subspan(at, std::min(kHashPiece, body.size() - at));
    checksum.add(piece);
    if (done) done(piece);
  }
  if (checksum.value() != load<uint64_t>(bytes.subspan(body.size()))) {
    fail("the " + noun_ + " is damaged: its checksum is wrong");
  }
}

void SectionFile::read_sections(std::span<const std::byte> rest) {
  while (!rest.empty()) {
    const auto damaged = [&] {
      fail("the " + noun_ + " is damaged: section " + std::to_string(entries_.size() + 1) +
           " does not fit the file");
    };
    if (rest.size() < sizeof(SectionHeader)) damaged();
    const auto header = load<SectionHeader>(rest);
    const std::string_view name = name_of(reinterpret_cast<const char*>(rest.data()));
    rest = rest.subspan(sizeof header);
    if (name.empty() || header.n_bytes > rest.size()) damaged();
    if (padding_of(header.n_bytes) > rest.size() - header.n_bytes) damaged();
    if (entries_.size() == kMostSections) fail("the " + noun_ + " is damaged: it has too many sections");
    if (find(name)) fail_section(name, "it is there twice");
    entries_.push_back({name, (header.flags & kMandatory) != 0, rest.first(header.n_bytes)});
    rest = rest.subspan(header.n_bytes + padding_of(header.n_bytes));
  }
}

void SectionFile::check_known(std::span<const std::string_view> known) const {
  for (const Entry& entry : entries_) {
    if (!entry.mandatory || std::find(known.begin(), known.end(), entry.name) != known.end()) continue;
    fail("the " + noun_ + " has a section '" + std::string(entry.name) +
         "' that this Quire does not know and that it would have to; a newer one wrote it");
  }
}

std::optional<std::span<const std::byte>> SectionFile::find(std::string_view section) const {
  for (const Entry& entry : entries_) {
    if (entry.name == section) return entry.bytes;
  }
  return std::nullopt;
}

std::span<const std::byte> SectionFile::get(std::string_view section) const {
  const auto bytes = find(section);
  if (!bytes) fail_section(section, "it is missing");
  return *bytes;
}

std::string SectionFile::get_text(std::string_view section) const {
  const auto bytes = get(section);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace quire
