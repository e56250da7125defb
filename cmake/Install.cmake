# Installs the library, its headers (generated ones included), a package for find_package(Athanor) and one for
# pkg-config. All of it finds its way from where it stands, so the installed tree can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS athanor athanor_torch EXPORT AthanorTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
file(RELATIVE_PATH BIN_TO_LIB /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(athanor_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${BIN_TO_LIB};$ORIGIN/../lib")
install(TARGETS athanor_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# Headers of the interface; those of the kernels and of the launcher stay inside.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/athanor DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "device/*" EXCLUDE PATTERN "launch/*" EXCLUDE)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/compat DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/athanor)
install(DIRECTORY ${GENERATED}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.inc" PATTERN "*.glue.inc" EXCLUDE)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Athanor)
install(EXPORT AthanorTargets NAMESPACE Athanor:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/AthanorConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/package/AthanorConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/AthanorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/AthanorConfig.cmake ${CMAKE_BINARY_DIR}/package/AthanorConfigVersion.cmake
        DESTINATION ${package_dir})

# The .pc file stands in <libdir>/pkgconfig and names everything relative to itself.
file(RELATIVE_PATH PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" PC_TO_PREFIX "${PC_TO_PREFIX}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/athanor.pc.in ${CMAKE_BINARY_DIR}/package/athanor.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/athanor.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# What a container image holds (deploy/assemble.sh): the program that trains, the launcher, the library.
set_target_properties(mnist PROPERTIES INSTALL_RPATH "$ORIGIN/${BIN_TO_LIB}")
install(TARGETS athanor athanor_cli mnist COMPONENT image EXCLUDE_FROM_ALL
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
