# What every room's CMakeLists.txt uses: one library per top-level folder, and the single-source kernel files.

# -Wno-restrict: g++ 12 reports it falsely for std::string concatenation (GCC bug 105651).
set(LOCKSTEP_WARNINGS -Wall -Wextra -Werror -Wno-unused-parameter -Wno-restrict -Wnon-virtual-dtor -Wpedantic)
# Frame pointers cost little and make every stack readable.
set(LOCKSTEP_COMMON_FLAGS -fno-omit-frame-pointer -ffp-contract=off)
if(LOCKSTEP_SANITIZE STREQUAL "address")
  set(LOCKSTEP_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(LOCKSTEP_SANITIZE STREQUAL "thread")
  set(LOCKSTEP_SANITIZE_FLAGS -fsanitize=thread)
endif()

function(lockstep_flags target)
  target_compile_options(${target} PRIVATE ${LOCKSTEP_WARNINGS} ${LOCKSTEP_COMMON_FLAGS} ${LOCKSTEP_SANITIZE_FLAGS})
  target_link_options(${target} PUBLIC $<BUILD_INTERFACE:${LOCKSTEP_SANITIZE_FLAGS}>)
endfunction()

# Here, not in the function that uses it: a language is enabled for the folder that asks, and only at file scope.
set(LOCKSTEP_HAS_NVCC OFF)
if(NOT LOCKSTEP_CUDA_KERNELS STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90)
    endif()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
    enable_language(CUDA)
    set(LOCKSTEP_HAS_NVCC ON)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # Debian 12's CMake does not know that nvcc has C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
  elseif(LOCKSTEP_CUDA_KERNELS STREQUAL "ON")
    message(FATAL_ERROR "LOCKSTEP_CUDA_KERNELS=ON, but no nvcc was found")
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
                                                     $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/lockstep>)
  target_compile_features(lockstep_${name} PUBLIC cxx_std_20)
  lockstep_flags(lockstep_${name})
  install(TARGETS lockstep_${name} EXPORT LockstepTargets)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_ROOMS ${name})
endfunction()

# lockstep_cpu_kernels(room files...): each file is compiled once per instruction-set level, every copy in a namespace of its own
# (LOCKSTEP_ISA), and chosen at run time (core/kernels/kernels.h). Always optimised: at -O0 the copies would share weak symbols, and an
# AVX-512 one could be linked into the generic path.
function(lockstep_cpu_kernels room)
  set(flags_generic "")
  set(flags_avx2 -mavx2 -mfma -mf16c -mbmi2)
  set(flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mbmi2 -mprefer-vector-width=512)
  list(GET ARGN 0 first)
  get_filename_component(stem ${first} NAME_WE)
  foreach(level generic avx2 avx512)
    set(object lockstep_${room}_${stem}_${level})
    add_library(${object} OBJECT ${ARGN})
    target_include_directories(${object} PRIVATE ${PROJECT_SOURCE_DIR})
    target_compile_definitions(${object} PRIVATE LOCKSTEP_ISA=${level})
    lockstep_flags(${object})
    target_compile_options(${object} PRIVATE -O3 -fno-math-errno -fno-trapping-math ${flags_${level}})
    target_sources(lockstep_${room} PRIVATE $<TARGET_OBJECTS:${object}>)
  endforeach()
endfunction()

# lockstep_kernels(room files...): single source: the same, and compiled by nvcc too where asked for.
function(lockstep_kernels room)
  lockstep_cpu_kernels(${room} ${ARGN})
  lockstep_cuda_kernels(${room} ${ARGN})
endfunction()

function(lockstep_cuda_kernels room)
  if(NOT LOCKSTEP_HAS_NVCC)
    return()
  endif()
  # The same .cpp, as CUDA: copies in the build tree, so that the host's own objects keep the C++ language.
  set(copies "")
  foreach(file ${ARGN})
    get_filename_component(stem ${file} NAME_WE)
    set(copy ${CMAKE_CURRENT_BINARY_DIR}/cuda/${stem}.cu)
    file(GENERATE OUTPUT ${copy} CONTENT "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${file}\"\n")
    list(APPEND copies ${copy})
  endforeach()
  add_library(lockstep_${room}_cuda OBJECT ${copies})
  target_include_directories(lockstep_${room}_cuda PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(lockstep_${room}_cuda PRIVATE LOCKSTEP_ISA=cuda)
  set_target_properties(lockstep_${room}_cuda PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
  target_compile_options(lockstep_${room}_cuda PRIVATE --fmad=false)
endfunction()

function(lockstep_install)
  get_property(rooms GLOBAL PROPERTY LOCKSTEP_ROOMS)
  foreach(room ${rooms})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep
            FILES_MATCHING PATTERN "*.h")
  endforeach()
  include(CMakePackageConfigHelpers)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/scripts/cmake/LockstepConfig.cmake.in
                                ${PROJECT_BINARY_DIR}/LockstepConfig.cmake
                                INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/LockstepConfig.cmake ${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
  install(EXPORT LockstepTargets NAMESPACE Lockstep:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
endfunction()
