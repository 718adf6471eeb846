# Shared compile settings, and the function with which a room of src/ declares itself.

add_library(quire_settings INTERFACE)
target_include_directories(quire_settings INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(quire_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wno-psabi>)
option(QUIRE_WERROR "Turn warnings into errors" OFF)
if(QUIRE_WERROR)
  # The sanitizers' own code makes GCC see uses of values before they are set (its manual, -fsanitize).
  target_compile_options(quire_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror;$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>>)
  # GCC 12 sees texts written out of bounds where tests join the tree's path to a name, depending on how long it is.
  target_compile_options(quire_settings INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>,$<BOOL:$<TARGET_PROPERTY:QUIRE_IS_TEST>>>:-Wno-array-bounds>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>,$<BOOL:$<TARGET_PROPERTY:QUIRE_IS_TEST>>>:-Wno-restrict>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>,$<BOOL:$<TARGET_PROPERTY:QUIRE_IS_TEST>>>:-Wno-stringop-overflow>)
endif()
if(QUIRE_SANITIZE)
  # -g1: lines for reports; what a debugger wants besides takes half of the time to compile.
  target_compile_options(quire_settings INTERFACE -fsanitize=${QUIRE_SANITIZE} -fno-omit-frame-pointer -O1 -g1)
  target_link_options(quire_settings INTERFACE -fsanitize=${QUIRE_SANITIZE})
  # With GCC these checks, made at every access, take as long to compile as everything else together. What they would find
  # AddressSanitizer stops at, but for misaligned addresses; the fuzz build (clang) has them all.
  target_compile_options(quire_settings INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=null,alignment,object-size,pointer-overflow,vptr>
    # What is tested is checked for undefined behaviour, not the tests, which would take twice as long to compile.
    $<$<BOOL:$<TARGET_PROPERTY:QUIRE_IS_TEST>>:-fno-sanitize=undefined>)
endif()
if(QUIRE_FUZZ)
  target_compile_options(quire_settings INTERFACE -fsanitize=fuzzer-no-link)
endif()
find_package(Threads REQUIRED)
target_link_libraries(quire_settings INTERFACE Threads::Threads)

# quire_room(NAME [ROOMS ...] [LIBS ...]): a static library quire_NAME of every .cpp in src/NAME,
# linked to the rooms on its left and to outside libraries.
function(quire_room name)
  cmake_parse_arguments(ARG "" "" "ROOMS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/isa_[a-z]*\\.cpp$") # built once per instruction set, see src/CMakeLists.txt
  set(kind PUBLIC)
  if(sources)
    add_library(quire_${name} STATIC ${sources})
  else()
    add_library(quire_${name} INTERFACE)
    set(kind INTERFACE)
  endif()
  target_link_libraries(quire_${name} ${kind} quire_settings ${ARG_LIBS})
  foreach(room IN LISTS ARG_ROOMS)
    target_link_libraries(quire_${name} ${kind} quire_${room})
  endforeach()
endfunction()
