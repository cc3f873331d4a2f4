# What is installed beside the program and the libraries, and the Debian package. Component `runtime` is the program with all that its user
# needs; component `development` is what a program of one's own is built with.

function(lockstep_install_runtime)
  # The program prints its own completion and manual page when it is installed.
  set(made ${PROJECT_BINARY_DIR}/share)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  configure_file(${PROJECT_SOURCE_DIR}/scripts/packaging/changelog.in ${made}/changelog @ONLY)
  install(CODE "
    foreach(arguments \"completion bash\" \"completion zsh\" \"completion fish\" man)
      string(REPLACE \" \" \".\" file \"\${arguments}\")
      separate_arguments(arguments)
      execute_process(COMMAND \"$<TARGET_FILE:lockstep>\" \${arguments} OUTPUT_FILE \"${made}/\${file}\" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
    foreach(file man changelog)
      execute_process(COMMAND gzip -9nc \"${made}/\${file}\" OUTPUT_FILE \"${made}/\${file}.gz\" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()" COMPONENT runtime)
  set(share ${CMAKE_INSTALL_DATADIR})
  install(FILES ${made}/completion.bash DESTINATION ${share}/bash-completion/completions RENAME lockstep COMPONENT runtime)
  install(FILES ${made}/completion.zsh DESTINATION ${share}/zsh/vendor-completions RENAME _lockstep COMPONENT runtime)
  install(FILES ${made}/completion.fish DESTINATION ${share}/fish/vendor_completions.d RENAME lockstep.fish COMPONENT runtime)
  install(FILES ${made}/man.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME lockstep.1.gz COMPONENT runtime)

  configure_file(${PROJECT_SOURCE_DIR}/scripts/packaging/modulefile.in ${PROJECT_BINARY_DIR}/modulefile @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/modulefile DESTINATION ${share}/lockstep/modulefiles/lockstep RENAME ${PROJECT_VERSION} COMPONENT runtime)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${share}/lockstep COMPONENT runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/scripts/lockstep-gdb.py DESTINATION ${share}/lockstep COMPONENT runtime)

  # As in the repository, so that the links among the pages lead somewhere.
  set(pages ${share}/doc/lockstep)
  install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/scripts/packaging/copyright ${made}/changelog.gz
          DESTINATION ${pages} COMPONENT runtime)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${pages} COMPONENT runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/data/FORMAT.md DESTINATION ${pages}/data COMPONENT runtime)
endfunction()

# Target api_reference: pages about what is installed, by Doxygen, in api/html of the build folder. A comment that it cannot read is an error.
function(lockstep_api_reference)
  find_program(DOXYGEN_PROGRAM doxygen)
  if(NOT DOXYGEN_PROGRAM)
    return()
  endif()
  lockstep_headers_of(headers launch/lockstep.h)
  list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/)
  list(JOIN headers " " headers)
  configure_file(${PROJECT_SOURCE_DIR}/scripts/packaging/Doxyfile.in ${PROJECT_BINARY_DIR}/Doxyfile @ONLY)
  add_custom_target(api_reference COMMAND ${DOXYGEN_PROGRAM} ${PROJECT_BINARY_DIR}/Doxyfile VERBATIM)
  if(LOCKSTEP_TESTS)
    add_test(NAME docs_api_reference COMMAND ${DOXYGEN_PROGRAM} ${PROJECT_BINARY_DIR}/Doxyfile)
    set_tests_properties(docs_api_reference PROPERTIES TIMEOUT 120 LABELS tree)
  endif()
endfunction()

# `cpack -G DEB` in the build folder makes lockstep_VERSION_ARCHITECTURE.deb of component runtime.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_CONTACT "Lockstep maintainers <maintainers@lockstep.invalid>" CACHE STRING "Maintainer of the package")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed data-parallel training of neural networks")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Each rank is one process or one thread; ranks exchange gradients over
threads or MPI. One YAML file describes a run, and HDF5 files hold its
data and its checkpoints. With the same batch a run has the same result,
bit by bit, at every number of ranks.")
set(CPACK_COMPONENTS_ALL runtime)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(MPI_C_FOUND)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)  # mpirun, and what it starts on other machines
endif()
include(CPack)
