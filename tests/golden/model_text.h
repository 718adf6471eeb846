// Small model files described in lines of text: keys, and tensors whose values come from a hash of their
// names, so that a generator in another language makes the same ones. tests/golden/families/README.md has the
// lines.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "unit/weights/gguf_writer.h"

namespace quire::golden {

// Value i of a run of numbers that is named: 64 bits, the finalizer of splitmix64 over FNV-1a of the name.
inline uint64_t hash_bits(const std::string& name, uint64_t i) {
  uint64_t x = 0xcbf29ce484222325;
  for (const char c : name) x = (x ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  x += (i + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// In [-1, 1), a multiple of 2^-23.
inline float hash_unit(const std::string& name, uint64_t i) {
  return static_cast<float>(hash_bits(name, i) >> 40) / 8388608.0f - 1.0f;
}

class ModelText {
 public:
  // One line of `key` or of a tensor; false: it is neither.
  bool add(const std::string& line) {
    std::istringstream words(line);
    std::string what, name;
    words >> what;
    if (what == "key") {
      std::string type;
      words >> type >> name;
      add_key(type, name, words);
    } else if (what == "tensor") {
      words >> name;
      add_hashed(name, words);
    } else if (what == "values") {
      words >> name;
      const std::vector<float> values = rest<float>(words);
      writer_.add_tensor(name, {values.size()}, TensorType::F32, bytes_of(values));
    } else {
      return false;
    }
    return true;
  }

  test::GgufWriter& writer() { return writer_; }
  test::Bytes build() const { return writer_.build(); }

  template <typename T>
  static std::vector<T> rest(std::istream& words) {
    std::vector<T> values;
    for (T value; words >> value;) values.push_back(value);
    return values;
  }

 private:
  static test::Bytes bytes_of(const std::vector<float>& values) {
    test::Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  void add_key(const std::string& type, const std::string& name, std::istream& words) {
    if (type == "string") {
      std::string text;
      words >> text;
      writer_.add(name, text.c_str());
    } else if (type == "u32") {
      writer_.add(name, rest<uint32_t>(words).at(0));
    } else if (type == "f32") {
      writer_.add(name, rest<float>(words).at(0));
    } else if (type == "bool") {
      writer_.add(name, rest<int>(words).at(0) != 0);
    } else if (type == "bools") {
      const std::vector<int> flags = rest<int>(words);
      test::ByteWriter body = test::GgufWriter::array_header(MetadataType::Bool, flags.size());
      for (const int flag : flags) body.put(static_cast<uint8_t>(flag));
      writer_.add_raw(name, MetadataType::Array, body);
    } else {
      throw std::runtime_error("no type '" + type + "' of key " + name);
    }
  }

  // "MEAN SCALE DIM...": value i is mean + scale * unit(i), each step rounded to f32.
  void add_hashed(const std::string& name, std::istream& words) {
    float mean = 0, scale = 0;
    words >> mean >> scale;
    const std::vector<uint64_t> shape = rest<uint64_t>(words);
    size_t n = 1;
    for (const uint64_t dim : shape) n *= dim;
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) {
      const float part = scale * hash_unit(name, i);
      values[i] = mean + part;
    }
    writer_.add_tensor(name, shape, TensorType::F32, bytes_of(values));
  }

  test::GgufWriter writer_;
};

}  // namespace quire::golden
