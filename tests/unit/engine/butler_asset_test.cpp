#include "engine/butler_asset.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "engine/butler_file.h"
#include "unit/engine/tiny_model.h"
#include "unit/temporary_folder.h"

namespace quire {
namespace {

class ButlerAsset : public test::TemporaryFolder {};

TEST_F(ButlerAsset, IsThatOfTheFirstFolderThatHasIt) {
  const std::string a = folder / "a";
  const std::string b = folder / "b";
  std::filesystem::create_directory(a);
  std::filesystem::create_directory(b);
  const std::vector<std::string> folders = {"/no/such/folder", a, b};
  EXPECT_EQ(find_butler_asset(folders, "00ff"), "");
  const auto write = [](const std::string& path, const std::string& fingerprint) {
    ButlerGeometry geometry{2, 1, 1, 4, 8, 1, 2, 3};
    save_butler(ButlerWeights::zeros(geometry), fingerprint, path, SafetensorsType::kF32);
  };
  write(b + "/butler-b.safetensors", "00ff");
  write(a + "/butler-of-another.safetensors", "00fe");
  write(a + "/other.safetensors", "00ff");
  std::ofstream(a + "/butler-broken.safetensors") << "not one";
  EXPECT_EQ(find_butler_asset(folders, "00ff"), b + "/butler-b.safetensors");
  EXPECT_EQ(find_butler_asset(folders, "00fe"), a + "/butler-of-another.safetensors");
  write(a + "/butler.safetensors", "00ff");
  EXPECT_EQ(find_butler_asset(folders, "00ff"), a + "/butler.safetensors");
  EXPECT_EQ(find_butler_asset({}, "00ff"), "");
}

// One that was cut off is not passed over for another, nor as if there were none: loading it tells its name.
TEST_F(ButlerAsset, ADamagedOneOfTheModelIsNamed) {
  test::TinyEngine tiny({.n_threads = 1, .asset_folders = {folder.string()}});
  const std::string path = folder.string() + "/butler.safetensors";
  save_butler(ButlerWeights::zeros(butler_geometry(tiny.engine.config())), tiny.engine.fingerprint(), path,
              SafetensorsType::kF32);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
  EXPECT_EQ(find_butler_asset(std::vector<std::string>{folder.string()}, tiny.engine.fingerprint()), path);
  EXPECT_EQ(find_butler_asset(std::vector<std::string>{folder.string()}, "00ff"), "");
  try {
    tiny.engine.make_cache(Recipe::parse("butler(budget=20)"));
    ADD_FAILURE() << "it is damaged";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
  }
}

// An engine finds the predictor of its model, says what is missing, and refuses what does not fit.
TEST_F(ButlerAsset, EngineFindsItsOwn) {
  test::TinyEngine tiny({.n_threads = 1, .asset_folders = {folder.string()}});
  const Recipe recipe = Recipe::parse("butler(budget=20)");
  try {
    tiny.engine.make_cache(recipe);
    ADD_FAILURE() << "there is none";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("quire train-butler"), std::string::npos) << error.what();
  }
  tiny.engine.make_cache(Recipe::parse("quest"));  // needs none
  ButlerGeometry geometry = butler_geometry(tiny.engine.config());
  geometry.hidden = 8;
  const std::string path = folder.string() + "/butler.safetensors";
  save_butler(ButlerWeights::zeros(geometry), tiny.engine.fingerprint(), path, SafetensorsType::kF32);
  tiny.engine.make_cache(recipe);
  EXPECT_EQ(tiny.engine.butler(), tiny.engine.butler());
  EXPECT_EQ(tiny.engine.butler()->geometry.hidden, 8u);
  save_butler(ButlerWeights::zeros(geometry), "0123456789abcdef", path, SafetensorsType::kF32);
  test::TinyEngine other({.n_threads = 1, .asset_folders = {folder.string()}});
  EXPECT_THROW(other.engine.make_cache(recipe), Error);
  EXPECT_THROW(test::TinyEngine({.n_threads = 1, .butler_path = path}), Error);
}

}  // namespace
}  // namespace quire
