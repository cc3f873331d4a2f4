# What every room's CMakeLists.txt uses: one library per top-level folder, and the single-source kernel files.

# -Wno-restrict: g++ 12 reports it falsely for std::string concatenation (GCC bug 105651).
set(LOCKSTEP_WARNINGS -Wall -Wextra -Werror -Wno-unused-parameter -Wno-restrict -Wnon-virtual-dtor -Wpedantic)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # clang builds the fuzz targets alone; its warnings are not kept at zero
  list(REMOVE_ITEM LOCKSTEP_WARNINGS -Werror -Wno-restrict)
endif()
# Frame pointers cost little and make every stack readable.
set(LOCKSTEP_COMMON_FLAGS -fno-omit-frame-pointer -ffp-contract=off)
if(LOCKSTEP_SANITIZE STREQUAL "address")
  set(LOCKSTEP_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=all
      -Wno-maybe-uninitialized)  # of which GCC warns wrongly where it adds checks
elseif(LOCKSTEP_SANITIZE STREQUAL "fuzzer")  # with clang: what libFuzzer needs to see which code an input reaches
  set(LOCKSTEP_SANITIZE_FLAGS -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
elseif(LOCKSTEP_SANITIZE STREQUAL "thread")
  set(LOCKSTEP_SANITIZE_FLAGS -fsanitize=thread -Wno-maybe-uninitialized)
endif()

function(lockstep_flags target)
  target_compile_options(${target} PRIVATE ${LOCKSTEP_WARNINGS} ${LOCKSTEP_COMMON_FLAGS} ${LOCKSTEP_SANITIZE_FLAGS})
  target_link_options(${target} PUBLIC $<BUILD_INTERFACE:${LOCKSTEP_SANITIZE_FLAGS}>)
endfunction()

# Here, not in the functions that use it: a language is enabled for the folder that asks, and only at file scope.
# AUTO takes what is there; ON fails where something is missing. LOCKSTEP_HAS_CUDA and LOCKSTEP_HAS_NCCL say what came out.
set(LOCKSTEP_HAS_CUDA OFF)
set(LOCKSTEP_HAS_NCCL OFF)
if(NOT LOCKSTEP_CUDA STREQUAL "OFF")
  set(missing "")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(LOCKSTEP_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(LOCKSTEP_NVCC)
      set(CMAKE_CUDA_COMPILER ${LOCKSTEP_NVCC})
    endif()
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    find_package(CUDAToolkit)
  endif()
  if(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cublasLt)
    list(APPEND missing "the CUDA toolkit (nvcc, cuBLASLt)")
  endif()
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDNN_HOME PATH_SUFFIXES include)
  find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR} ENV CUDNN_HOME PATH_SUFFIXES lib lib64)
  if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
    list(APPEND missing "cuDNN 9")
  endif()
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h PATH_SUFFIXES include
            HINTS ${CUDNN_FRONTEND_DIR} ENV CUDNN_FRONTEND_DIR ${PROJECT_SOURCE_DIR}/build/third_party/cudnn_frontend)
  if(NOT CUDNN_FRONTEND_INCLUDE_DIR)
    list(APPEND missing "cudnn-frontend's headers (scripts/install_packages cuda fetches them)")
  endif()
  if(missing)
    list(JOIN missing ", " missing)
    if(LOCKSTEP_CUDA STREQUAL "ON")
      message(FATAL_ERROR "LOCKSTEP_CUDA=ON, but these are missing: ${missing}")
    endif()
    message(STATUS "No CUDA: missing are ${missing}")
  else()
    set(LOCKSTEP_HAS_CUDA ON)
    if(NOT CMAKE_CUDA_ARCHITECTURES)  # machine code for each, and of the last one also what drivers translate for later GPUs
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
    endif()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
    if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # Debian 12's CMake does not know that nvcc has C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME PATH_SUFFIXES include)
    find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} ENV NCCL_HOME PATH_SUFFIXES lib lib64)
    if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
      set(LOCKSTEP_HAS_NCCL ON)
    elseif(LOCKSTEP_CUDA STREQUAL "ON")
      message(FATAL_ERROR "LOCKSTEP_CUDA=ON, but NCCL is missing")
    else()
      message(STATUS "No NCCL: ranks on GPUs will exchange through the host")
    endif()
    list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
    message(STATUS "CUDA ${CUDAToolkit_VERSION} for GPUs of architectures ${architectures}")
  endif()
endif()

# lockstep_room(core sources...): library lockstep_core
function(lockstep_room name)
  if(NOT ARGN)
    file(WRITE ${PROJECT_BINARY_DIR}/empty_${name}.cpp "")
    set(ARGN ${PROJECT_BINARY_DIR}/empty_${name}.cpp)
  endif()
  add_library(lockstep_${name} STATIC ${ARGN})
  add_library(Lockstep::${name} ALIAS lockstep_${name})
  target_include_directories(lockstep_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                     $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(lockstep_${name} PUBLIC cxx_std_20)
  lockstep_flags(lockstep_${name})
  install(TARGETS lockstep_${name} EXPORT LockstepTargets COMPONENT development)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_ROOMS ${name})
endfunction()

# lockstep_list(sources Type ending header function): a list of values, one file each. Of `sources` (a variable, to which the file that is made
# here is added) each NAME.cpp defines `Type NAME_ENDING()`; `function`, declared in `header`, returns them all in the order of `sources`.
function(lockstep_list sources type ending header function)
  list(TRANSFORM ${sources} REPLACE ".*/(.*)\\.cpp" "\\1_${ending}()" OUTPUT_VARIABLE calls)
  list(JOIN calls ", " calls)
  file(CONFIGURE OUTPUT ${function}.cpp CONTENT "#include \"@header@\"

namespace lockstep {
@type@ @calls@;
std::vector<@type@> @function@() { return {@calls@}; }
}  // namespace lockstep
" @ONLY)
  set(${sources} ${${sources}} ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp PARENT_SCOPE)
endfunction()

# lockstep_choices(sources Kind header function first [ending]): the choices of a selector, each NAME.cpp with a `Choice<Kind> NAME_choice()`,
# or NAME_ending(), `first` before the others.
function(lockstep_choices sources kind header function first)
  set(ending choice)
  if(ARGN)
    set(ending ${ARGN})
  endif()
  set(ordered ${${sources}})
  set(others ${${sources}})
  list(FILTER ordered INCLUDE REGEX "/${first}\\.cpp$")
  list(FILTER others EXCLUDE REGEX "/${first}\\.cpp$")
  list(APPEND ordered ${others})
  lockstep_list(ordered "Choice<${kind}>" ${ending} ${header} ${function})
  set(${sources} ${${sources}} ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp PARENT_SCOPE)
endfunction()

# lockstep_cpu_kernels(room files... [LEVELS levels...]): each file is compiled once per instruction-set level, every copy in a namespace of
# its own (LOCKSTEP_ISA), and chosen at run time (core/kernels/kernels.h). Always optimised: at -O0 the copies would share weak symbols, and an
# AVX-512 one could be linked into the generic path.
function(lockstep_cpu_kernels room)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "LEVELS")
  if(NOT ARG_LEVELS)
    set(ARG_LEVELS generic avx2 avx512)
  endif()
  set(flags_generic "")
  set(flags_avx2 -mavx2 -mfma -mf16c -mbmi2)
  set(flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mbmi2 -mprefer-vector-width=512)
  set(flags_avx512_bf16 ${flags_avx512} -mavx512bf16 -DLOCKSTEP_TILES -DLOCKSTEP_DOTS)
  set(flags_amx ${flags_avx512} -mamx-tile -mamx-bf16 -DLOCKSTEP_TILES)
  set(flags_emulated_amx ${flags_avx512} -DLOCKSTEP_TILES -DLOCKSTEP_EMULATE_TILES)
  list(GET ARG_UNPARSED_ARGUMENTS 0 first)
  get_filename_component(stem ${first} NAME_WE)
  foreach(level ${ARG_LEVELS})
    set(object lockstep_${room}_${stem}_${level})
    add_library(${object} OBJECT ${ARG_UNPARSED_ARGUMENTS})
    target_include_directories(${object} PRIVATE ${PROJECT_SOURCE_DIR})
    target_compile_definitions(${object} PRIVATE LOCKSTEP_ISA=${level})
    lockstep_flags(${object})
    set(optimise -O3)
    if(level STREQUAL "generic" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
      set(optimise -O2)  # no processor of the last ten years runs it, and -O3 takes half as long again to compile
    endif()
    target_compile_options(${object} PRIVATE ${optimise} -fno-math-errno -fno-trapping-math ${flags_${level}})
    target_sources(lockstep_${room} PRIVATE $<TARGET_OBJECTS:${object}>)
  endforeach()
endfunction()

# lockstep_cuda_library(cuda sources... [LINK libraries...]): liblockstep_cuda.so, which the program opens when a GPU is first asked for:
# nothing of CUDA is linked to the program itself, which starts without it. It compiles all that it needs; of lockstep's own libraries it
# links none.
function(lockstep_cuda_library name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "LINK")
  set(target lockstep_${name})
  add_library(${target} SHARED ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  list(JOIN CMAKE_CUDA_ARCHITECTURES "|" architectures)
  target_compile_definitions(${target} PRIVATE LOCKSTEP_ISA=gpu "LOCKSTEP_CUDA_ARCHITECTURES=\"${architectures}\"")
  set(host_flags ${LOCKSTEP_WARNINGS} ${LOCKSTEP_COMMON_FLAGS})
  # nvcc's own output breaks -Wpedantic, and -Wno-... needs its comma kept from nvcc.
  set(nvcc_host_flags ${host_flags})
  list(REMOVE_ITEM nvcc_host_flags -Wpedantic)
  list(JOIN nvcc_host_flags "," nvcc_host_flags)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${host_flags}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;--threads=2;-Xcompiler=${nvcc_host_flags}>")
  target_link_options(${target} PRIVATE LINKER:--no-undefined)
  target_link_libraries(${target} PRIVATE CUDA::cudart ${ARG_LINK})
  # CUDA's libraries lie beside it, or where they were found.
  set(rpath "$ORIGIN" /usr/local/cuda/lib64 ${CUDAToolkit_LIBRARY_DIR})
  set_target_properties(${target} PROPERTIES
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON LINKER_LANGUAGE CXX
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${rpath}")
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_CUDA_LIBRARIES ${target})
  install(TARGETS ${target} LIBRARY DESTINATION lib COMPONENT runtime)  # here and there, programs look in ../lib
endfunction()

# lockstep_headers_of(variable headers...): these headers and all of ours that they include, by their paths from the root
function(lockstep_headers_of variable)
  set(open ${ARGN})
  set(found "")
  while(open)
    list(POP_FRONT open header)
    if(header IN_LIST found)
      continue()
    endif()
    list(APPEND found ${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"")
    list(TRANSFORM includes REPLACE "^#include \"([^\"]+)\".*" "\\1")
    list(APPEND open ${includes})
  endwhile()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# Installs lockstep/lockstep.h (launch/lockstep.h) and all headers of ours that it includes, below include/lockstep. In the sources they name each
# other from the root of this repository ("core/base/error.h"); in what is installed each such include is "lockstep/core/base/error.h", so that a
# program's own folders named core or data hide none of them, whatever its include paths are.
function(lockstep_install)
  lockstep_headers_of(headers launch/lockstep.h)
  install(CODE "set(headers \"${headers}\")\nset(source \"${PROJECT_SOURCE_DIR}\")\nset(include \"${CMAKE_INSTALL_INCLUDEDIR}\")" COMPONENT development)
  install(SCRIPT ${PROJECT_SOURCE_DIR}/scripts/cmake/install_headers.cmake COMPONENT development)
  include(CMakePackageConfigHelpers)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/scripts/cmake/LockstepConfig.cmake.in
                                ${PROJECT_BINARY_DIR}/LockstepConfig.cmake
                                INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/LockstepConfig.cmake ${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep COMPONENT development)
  install(EXPORT LockstepTargets NAMESPACE Lockstep:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep COMPONENT development)
endfunction()
