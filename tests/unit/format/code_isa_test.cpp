// Law 5: encoded bytes are the same from builds for different instruction sets.
#include <gtest/gtest.h>

#include <vector>

#include "format/code_catalogue.h"
#include "format/frame.h"
#include "unit/format/code_rows.h"

namespace quire {

namespace test_baseline {
#include "unit/format/code_isa.inl"
}  // namespace test_baseline
namespace test_avx2 {
extern const bool kBuilt;
int code_all(const Frame& frame, const float* rows, const Codebook* books, float* framed, uint8_t* bytes,
             float* back);
}  // namespace test_avx2
namespace test_avx512 {
extern const bool kBuilt;
int code_all(const Frame& frame, const float* rows, const Codebook* books, float* framed, uint8_t* bytes,
             float* back);
}  // namespace test_avx512

namespace {

using namespace test;

using CodeAll = int(const Frame&, const float*, const Codebook*, float*, uint8_t*, float*);

struct Encoded {
  std::vector<float> framed;
  std::vector<uint8_t> bytes;
  std::vector<float> back;
};

Encoded encode(CodeAll* code_all, const Frame& frame, const std::vector<float>& rows,
               const std::vector<Codebook>& books) {
  Encoded made;
  made.framed.resize(rows.size());
  made.bytes.resize(static_cast<size_t>(1) << 20);
  made.back.resize(rows.size() * 2 * kCodeCount);
  const int written =
      code_all(frame, rows.data(), books.data(), made.framed.data(), made.bytes.data(), made.back.data());
  made.bytes.resize(static_cast<size_t>(written));
  return made;
}

// Rows of many sizes: Gaussian, cubed, tiny, huge, and zero.
std::vector<float> mixed_page(int head_dim, uint64_t seed) {
  std::vector<float> rows = gaussian_page(head_dim, seed);
  for (int t = 0; t < kPageRows; ++t) {
    const float scales[] = {1.0f, 1e-3f, 300.0f, 0.0f, 1e-7f, 1e20f, 1e-41f};
    for (int j = 0; j < head_dim; ++j) {
      float& x = rows[static_cast<size_t>(t * head_dim + j)];
      x = (t % 3 == 0 ? x * x * x : x) * (t < 48 ? 1.0f : scales[t % 7]);
    }
  }
  return rows;
}

void expect_same_bytes(CodeAll* code_all) {
  for (int head_dim : {8, 9, 40, 64, 72, 80, 96, 99, 100, 112, 128, 255, 256}) {
    std::vector<Codebook> books;
    for (int i = 0; i < kCodeCount; ++i) {
      books.push_back(
          visit_code(static_cast<Code>(i), [=](auto f) { return codebook_of<decltype(f)>(head_dim); }));
    }
    std::vector<float> signs(static_cast<size_t>(head_dim));
    frame_signs(frame_seed(7, 1, FrameSide::kValue), head_dim, signs.data());
    const std::vector<float> mean = Random(3).normals(static_cast<size_t>(head_dim));
    const Frame frames[] = {{head_dim, nullptr, nullptr, nullptr},
                            {head_dim, mean.data(), nullptr, signs.data()}};
    for (const Frame& frame : frames) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        const std::vector<float> rows = mixed_page(head_dim, seed);
        const Encoded expected = encode(test_baseline::code_all, frame, rows, books);
        const Encoded made = encode(code_all, frame, rows, books);
        ASSERT_EQ(made.framed, expected.framed) << head_dim;
        ASSERT_EQ(made.bytes, expected.bytes) << head_dim;
        ASSERT_EQ(made.back, expected.back) << head_dim;
      }
    }
  }
}

TEST(CodeBytes, SameFromAvx2) {
  if (!test_avx2::kBuilt || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) GTEST_SKIP();
  expect_same_bytes(test_avx2::code_all);
}

TEST(CodeBytes, SameFromAvx512) {
  if (!test_avx512::kBuilt || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
    GTEST_SKIP();
  expect_same_bytes(test_avx512::code_all);
}

// Pages that were written once must be read for ever: bytes of rows made of dyadic numbers (no maths library
// in them), hashed by FNV-1a. A format that has to change takes a new name.
uint64_t hash_of(Code code, int head_dim) {
  Random random(99);
  std::vector<float> rows(page_values(head_dim));
  for (float& x : rows) {
    int sum = -32 * 8;
    for (int i = 0; i < 8; ++i) sum += static_cast<int>(random.next() >> 58);
    x = static_cast<float>(sum) / 64.0f;
  }
  uint64_t hash = 0xcbf29ce484222325ull;
  visit_code(code, [&](auto format) {
    using Format = decltype(format);
    for (bool keys : {true, false}) {
      for (uint8_t byte : encoded<Format>(rows, head_dim, codebook_of<Format>(head_dim), keys)) {
        hash = (hash ^ byte) * 0x100000001b3ull;
      }
    }
  });
  return hash;
}

TEST(CodeBytes, Frozen) {
  const uint64_t frozen[kCodeCount][2] = {
      // head sizes 64, 100
      {0xa55f5679c49bc335ull, 0x1738ec4d61204e72ull}, {0x7d2f4074ab58a5d0ull, 0x3a592f3b7afabc4full},
      {0xb2e15166744785c6ull, 0x10c75eb79270d128ull}, {0x042ea8b9a95a26ebull, 0xe2fe041d2c41f763ull},
      {0x175a21cf5610a00aull, 0xbab78aafbb8194fbull}, {0x70e3e9938d40f30aull, 0x7850ea2474ae1d4eull},
      {0xaaae163a48095a39ull, 0xd016bd7bbe0f942bull}, {0x0cbf53482878068dull, 0x1349f862b0115b52ull},
      {0x09a9d99fa3e07b06ull, 0x5254c0d601f68e76ull}, {0x88ba50e2a7090304ull, 0x2651dddf524a69f1ull},
      {0x93161a58b15a3177ull, 0xd396a2da6e19866bull}, {0x3eff0fe68494c9ccull, 0xc21ecb8624efe3ffull},
      {0xe20e3c0846328b0bull, 0xd30e7df1596c1545ull}, {0x6a5093162e88f623ull, 0x82a994a7ceb71aefull},
      {0xf8cdb37ea17b93f3ull, 0x3f4e29c5fa4ff299ull}, {0x68401b38b3c53e60ull, 0x5bfd56b31e600a8full},
      {0x1546b8043fc6f5edull, 0x24edf0e693201c86ull}, {0x416e585081f4e73bull, 0xca7fa12d5a8afa80ull},
  };
  for (int i = 0; i < kCodeCount; ++i) {
    const Code code = static_cast<Code>(i);
    EXPECT_EQ(hash_of(code, 64), frozen[i][0]) << info(code).name;
    EXPECT_EQ(hash_of(code, 100), frozen[i][1]) << info(code).name;
  }
}

}  // namespace
}  // namespace quire
